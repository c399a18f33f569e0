// fuzz_ring.cc - a ring of exchanges in virtual time, on links with one delay. It does only what a fuzz target needs.
#include "tests/fuzz/fuzz_ring.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace gradlane::test {
namespace {

constexpr Nanos kDelay = 5 * kMicrosecond;
constexpr Nanos kLeastPollGap = 100;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "fuzz_ring: %s\n", what);
  std::abort();
}

}  // namespace

class FuzzRing::Node final : public PacketIo {
 public:
  Node(FuzzRing& ring, const ExchangeConfig& config)
      : ring_(ring), rank_(config.rank), mtu_(config.mtu), exchange_(std::make_unique<Exchange>(config, *this)) {}
  ~Node() override {
    exchange_.reset();
    if (held_ != 0) fail("a node has not given back all packet buffers");
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Packet allocate() noexcept override { return make(mtu_); }
  void release(Packet packet) noexcept override {
    delete[] static_cast<uint8_t*>(packet.handle);
    --held_;
  }
  bool transmit(unsigned rank, Packet packet, size_t bytes) noexcept override {
    if (bytes > mtu_) fail("a packet is longer than the MTU");
    ring_.put(rank_, rank, {packet.data, bytes});
    return true;
  }

  void receive(unsigned from, std::span<const uint8_t> bytes) {
    const Packet packet = make(bytes.size());
    if (!bytes.empty()) std::memcpy(packet.data, bytes.data(), bytes.size());
    if (!exchange_->receive(from, packet, bytes.size(), ring_.now_)) release(packet);
  }
  void poll() {
    exchange_->poll(ring_.now_);
    for (Completion completion; exchange_->next_completion(completion);) {
      completions.push_back(completion);
      --ring_.pending_;
    }
    due = std::max(exchange_->deadline(), ring_.now_ + kLeastPollGap);
  }
  [[nodiscard]] Exchange& exchange() const { return *exchange_; }

  Nanos due = 0;
  bool ready = false;
  std::vector<Completion> completions;

 private:
  Packet make(size_t bytes) {
    ++held_;
    auto* const data = new uint8_t[bytes];
    return {data, data};
  }

  FuzzRing& ring_;
  unsigned rank_;
  size_t mtu_;
  size_t held_ = 0;
  std::unique_ptr<Exchange> exchange_;
};

FuzzRing::FuzzRing(const ExchangeConfig& config, unsigned loss_percent, Tap tap)
    : loss_percent_(loss_percent), tap_(std::move(tap)) {
  for (unsigned rank = 0; rank < config.world; ++rank) {
    ExchangeConfig own = config;
    own.rank = rank;
    own.incarnation = Random::mix(rank + 1);
    nodes_.push_back(std::make_unique<Node>(*this, own));
  }
}

FuzzRing::~FuzzRing() = default;

Exchange& FuzzRing::exchange(unsigned rank) { return nodes_[rank]->exchange(); }

std::span<const Completion> FuzzRing::completions(unsigned rank) const { return nodes_[rank]->completions; }

void FuzzRing::submit(unsigned rank, const Operation& operation) {
  if (exchange(rank).submit(operation, now_).refusal != Exchange::Refusal::kNone) fail("an operation is refused");
  ++pending_;
  nodes_[rank]->due = now_;
}

void FuzzRing::put(unsigned from, unsigned to, std::span<const uint8_t> bytes) {
  if (random_.below(100) < loss_percent_) return;
  flying_.push_back({now_ + kDelay, from, to, {bytes.begin(), bytes.end()}});
}

void FuzzRing::inject(unsigned to, unsigned from, std::span<const uint8_t> packet) {
  nodes_[to]->receive(from, packet);
  nodes_[to]->poll();
}

bool FuzzRing::step(Nanos limit) {
  Nanos next = flying_.empty() ? kNever : flying_.front().due;
  for (const auto& node : nodes_) next = std::min(next, node->due);
  if (next > limit) {
    now_ = std::max(now_, limit);
    return false;
  }
  now_ = std::max(now_, next);
  while (!flying_.empty() && flying_.front().due <= now_) {
    const Flying it = std::move(flying_.front());
    flying_.pop_front();
    if (tap_) tap_(it.from, it.to, it.bytes);
    nodes_[it.to]->receive(it.from, it.bytes);
    nodes_[it.to]->ready = true;
  }
  for (const auto& node : nodes_) {
    if (!std::exchange(node->ready, false) && node->due > now_) continue;
    node->poll();
  }
  return true;
}

bool FuzzRing::run_until_idle(Nanos limit) {
  while (!idle()) {
    if (!step(limit)) return idle();
  }
  return true;
}

}  // namespace gradlane::test
