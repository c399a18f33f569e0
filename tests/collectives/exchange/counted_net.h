// counted_net.h - a ring of exchanges on a network that allocates nothing; allocations by the exchanges are counted
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/time.h"
#include "collectives/exchange/exchange.h"

namespace gradlane::test {

// While this is true, the replacement of `operator new` counts.
inline bool g_counting = false;
inline size_t g_allocations = 0;

// Calls an exchange and counts its allocations.
template <typename Call>
auto watched(Call call) {
  struct Watch {
    Watch() { g_counting = true; }
    ~Watch() { g_counting = false; }
  } watch;
  return call();
}

// ---- A network that itself allocates nothing while it runs

inline constexpr size_t kMtu = 1472;
inline constexpr size_t kWindow = 16;
inline constexpr size_t kBuffers = 256;
inline constexpr Nanos kStep = 5 * kMicrosecond;

struct Troubles {
  double loss = 0;
  double duplicate = 0;
  double corrupt = 0;
  double busy = 0;
  double no_buffer = 0;
};

class Net;

class Node final : public PacketIo {
 public:
  Node(Net& net, const ExchangeConfig& config) : net_(net), config_(config), memory_(kBuffers * kMtu) {
    for (size_t i = 0; i < kBuffers; ++i) free_[i] = static_cast<uint16_t>(i);
    make();
  }

  void make() {
    exchange_.reset();
    exchange_ = std::make_unique<Exchange>(config_, *this);
  }
  void restart() {
    config_.incarnation += 1000;
    make();
  }

  [[nodiscard]] Exchange& exchange() { return *exchange_; }
  [[nodiscard]] ExchangeConfig& config() { return config_; }
  [[nodiscard]] size_t peak() const { return peak_; }  // most buffers held at a time
  [[nodiscard]] Failure failure() const { return failure_; }
  [[nodiscard]] size_t ended() const { return ended_; }

  Packet allocate() noexcept override;
  void release(Packet packet) noexcept override {
    free_[free_count_++] = static_cast<uint16_t>(static_cast<size_t>(packet.data - memory_.data()) / kMtu);
  }
  bool transmit(unsigned rank, Packet packet, size_t bytes) noexcept override;

  Packet take() noexcept {
    if (free_count_ == 0) return {};
    const Packet packet = {memory_.data() + kMtu * free_[--free_count_], this};
    peak_ = std::max(peak_, kBuffers - free_count_);
    return packet;
  }
  void receive(unsigned from, const uint8_t* bytes, size_t size, Nanos now) {
    const Packet packet = take();
    if (!packet) return;
    std::memcpy(packet.data, bytes, size);
    if (!watched([&] { return exchange_->receive(from, packet, size, now); })) release(packet);
  }
  void poll(Nanos now) {
    watched([&] { exchange_->poll(now); });
    Completion completion;
    while (watched([&] { return exchange_->next_completion(completion); })) {
      ++ended_;
      failure_ = completion.failure;
    }
    // These calls are made only to count their allocations.
    (void)watched([&] { return exchange_->deadline(); });
    (void)watched([&] { return exchange_->ring_status(); });
    if (config_.world > 1) (void)watched([&] { return exchange_->link_status(0); });
  }

  bool stopped = false;

 private:
  Net& net_;
  ExchangeConfig config_;
  std::vector<uint8_t> memory_;
  std::array<uint16_t, kBuffers> free_{};
  size_t free_count_ = kBuffers;
  size_t peak_ = 0;
  Failure failure_;  // failure of the latest operation
  size_t ended_ = 0;
  std::unique_ptr<Exchange> exchange_;
};

class Net {
 public:
  explicit Net(unsigned world, const ExchangeConfig& common = {}) : random_(world) {
    nodes_.reserve(world);
    for (unsigned i = 0; i < world; ++i) {
      ExchangeConfig config = common;
      config.world = world;
      config.rank = i;
      config.incarnation = i + 1;
      config.mtu = kMtu;
      config.window = kWindow;
      config.max_bytes = 1 << 20;
      nodes_.push_back(std::make_unique<Node>(*this, config));
    }
  }

  [[nodiscard]] unsigned world() const { return static_cast<unsigned>(nodes_.size()); }
  [[nodiscard]] Node& node(unsigned i) { return *nodes_[i]; }
  [[nodiscard]] Nanos now() const { return now_; }
  [[nodiscard]] bool chance(double p) { return p > 0 && random_.chance(p); }
  [[nodiscard]] uint64_t count(Counter counter) const {
    uint64_t total = 0;
    for (const auto& node : nodes_) total += node->exchange().counters()[counter];
    return total;
  }

  Exchange::Submitted submit(unsigned i, const Operation& operation) {
    return watched([&] { return node(i).exchange().submit(operation, now_); });
  }

  void carry(unsigned from, unsigned to, const uint8_t* bytes, size_t size) {
    for (unsigned copies = chance(troubles.duplicate) ? 2 : 1; copies != 0; --copies) {
      if (chance(troubles.loss) || queued_ == queue_.size()) continue;
      InFlight& packet = queue_[queued_++];
      packet.from = from;
      packet.to = to;
      packet.size = size;
      std::memcpy(packet.bytes.data(), bytes, size);
      if (chance(troubles.corrupt)) packet.bytes[random_.below(size)] ^= 1;
    }
  }

  // Delivers the packets that were sent, in another order. Then all nodes poll.
  void step() {
    now_ += kStep;
    const size_t arriving = std::exchange(queued_, 0);
    std::swap(queue_, arriving_);
    for (size_t i = 0; i < arriving; ++i) {
      InFlight& packet = arriving_[chance(0.5) ? i : arriving - 1];
      if (&packet != &arriving_[i]) std::swap(packet, arriving_[i]);
      Node& to = node(arriving_[i].to);
      if (!to.stopped) to.receive(arriving_[i].from, arriving_[i].bytes.data(), arriving_[i].size, now_);
    }
    for (const auto& node : nodes_) {
      if (!node->stopped) node->poll(now_);
    }
  }
  // Runs until `ended` operations have ended on each of these nodes. Returns false if that takes until `limit`.
  bool run(std::span<const unsigned> nodes, size_t ended, Nanos limit) {
    const auto done = [&](unsigned i) { return node(i).ended() >= ended; };
    while (now_ < limit) {
      if (std::all_of(nodes.begin(), nodes.end(), done)) return true;
      step();
    }
    return false;
  }

  Troubles troubles;

 private:
  struct InFlight {
    unsigned from = 0;
    unsigned to = 0;
    size_t size = 0;
    std::array<uint8_t, kMtu> bytes{};
  };
  Nanos now_ = kSecond;
  Random random_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<InFlight> queue_ = std::vector<InFlight>(4096);
  std::vector<InFlight> arriving_ = std::vector<InFlight>(4096);
  size_t queued_ = 0;
};

inline Packet Node::allocate() noexcept { return net_.chance(net_.troubles.no_buffer) ? Packet{} : take(); }

inline bool Node::transmit(unsigned rank, Packet packet, size_t bytes) noexcept {
  if (net_.chance(net_.troubles.busy)) return false;
  net_.carry(config_.rank, rank, packet.data, bytes);
  return true;
}

}  // namespace gradlane::test
