// ring.cc - a ring of exchanges in one process, one of which can be timed (benchmarks only)
#include "tools/bench/ring.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "collectives/wire.h"

namespace gradlane {
namespace {

constexpr size_t kLine = 64;
// Offset of a packet in its buffer, as in DPDK: mbuf, headroom, and the headers of Ethernet, IPv4 and UDP.
constexpr size_t kDataOffset = 128 + 128 + 42;
constexpr Nanos kMoment = kMicrosecond;
// number of rounds without a data packet, after which no rank has data to send, not even data that wait to fill a
// packet
constexpr unsigned kIdleRounds = 64;
constexpr unsigned kSetUpRounds = 100000;  // 0.4 s of virtual time

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

ExchangeConfig config_of(unsigned rank, const Codec& codec, size_t mtu, size_t max_bytes) {
  ExchangeConfig config;
  config.world = BenchRing::kWorld;
  config.rank = rank;
  config.mtu = mtu;
  config.codec = codec;
  config.incarnation = rank + 1;
  config.operations = 2;
  config.max_bytes = max_bytes;
  config.peer_timeout = config.start_timeout = config.operation_timeout = 3600 * kSecond;
  config.min_rto = kSecond;
  config.queue_target = kMaxWindow;
  return config;
}

// Returns twice the number of buffers in all windows, open packets and queues together.
size_t buffers_for(const ExchangeConfig& config) { return 2 * config.world * (2 * config.window + 16); }

bool is_data(const Arrival& arrival) { return load<LinkHeader>(arrival.packet.data).kind == PacketKind::kData; }

}  // namespace

// ---- Buffers

// Places buffers an odd number of cache lines apart, so that they spread over the sets of a cache.
BufferPool::BufferPool(size_t count, size_t capacity) : memory_(nullptr, nullptr) {
  const size_t stride = (round_up(kDataOffset + capacity, kLine) / kLine | 1) * kLine;
  memory_ = allocate_memory(count * stride);
  free_.reserve(count);
  for (size_t i = 0; i < count; ++i) free_.push_back(memory_.get() + i * stride + kDataOffset);
}

Packet BufferPool::take() noexcept {
  if (free_.empty()) return {};
  uint8_t* const data = free_.back();
  free_.pop_back();
  return {data, nullptr};
}

std::span<uint8_t* const> BufferPool::next(size_t most) const noexcept {
  return std::span(free_).last(std::min(most, free_.size()));
}

// ---- One rank

RingNode::RingNode(const ExchangeConfig& config, BufferPool& pool) : pool_(pool), exchange_(config, *this) {
  released_.reserve(4 * config.window);
  sent_.reserve(4 * config.window);
}

bool RingNode::transmit(unsigned rank, Packet packet, size_t bytes) noexcept {
  sent_.push_back({rank, packet, bytes});
  return true;
}

// ---- All of them

BenchRing::BenchRing(const Codec& codec, size_t mtu, size_t max_bytes, size_t burst)
    : pool_(buffers_for(config_of(0, codec, mtu, max_bytes)), mtu), burst_(burst) {
  for (unsigned rank = 0; rank < kWorld; ++rank) {
    nodes_[rank] = std::make_unique<RingNode>(config_of(rank, codec, mtu, max_bytes), pool_);
  }
  const auto whole = [](const auto& each) { return each->exchange().ring_status().ready; };
  for (unsigned round = 0; !std::ranges::all_of(nodes_, whole); ++round) {
    if (round == kSetUpRounds)
      throw SetupError("the ring of a benchmark does not become ready: this is a bug in gradlane");
    for (unsigned rank = 0; rank < kWorld; ++rank) serve(rank);
  }
}

void BenchRing::trace() {
  constexpr size_t kWords = size_t{1} << 16;
  log_ = node(kTimed).exchange().make_trace(kWords, []() noexcept {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<Nanos>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  });
  log_->start();
}

void BenchRing::submit(unsigned rank, const Operation& operation) {
  const auto submitted = node(rank).exchange().submit(operation, now_);
  if (submitted.refusal != Exchange::Refusal::kNone) {
    throw SetupError("a benchmark's operation was refused: this is a bug in gradlane");
  }
  ++to_complete_;
}

bool BenchRing::done() {
  for (const auto& each : nodes_) {
    for (Completion completion; each->exchange().next_completion(completion); --to_complete_) {
      if (completion.failure) {
        throw SetupError("a benchmark's operation failed: " + failure_text(completion.failure));
      }
    }
  }
  return to_complete_ == 0;
}

void BenchRing::serve(unsigned rank) {
  RingNode& node = *nodes_[rank];
  now_ += kMoment;
  bool more = true;
  while (more) {
    size_t received = 0;
    for (auto* queue : {&node.from_predecessor, &node.from_successor}) {
      for (; !queue->empty() && received < burst_; ++received) {
        const Arrival arrival = queue->front();
        if (node.held && queue == &node.from_predecessor && is_data(arrival)) break;
        queue->pop_front();
        if (!node.exchange_.receive(arrival.from, arrival.packet, arrival.bytes, now_)) pool_.give(arrival.packet);
      }
    }
    node.exchange_.poll(now_);
    more = received == burst_ || node.exchange_.deadline() <= now_;
  }
  deliver(node);
}

void BenchRing::serve_others() {
  for (unsigned i = 1; i < kWorld; ++i) serve((kTimed + i) % kWorld);
}

void BenchRing::take_burst(std::vector<Arrival>& burst) {
  RingNode& node = *nodes_[kTimed];
  now_ += kMoment;
  burst.clear();
  for (size_t acks = (node.from_successor.size() + 1) / 2; acks != 0; --acks) {
    burst.push_back(node.from_successor.front());
    node.from_successor.pop_front();
  }
  for (size_t i = 0; i < burst_ && !node.from_predecessor.empty(); ++i) {
    burst.push_back(node.from_predecessor.front());
    node.from_predecessor.pop_front();
  }
}

void BenchRing::receive(std::span<Arrival> burst) noexcept {
  Exchange& exchange = nodes_[kTimed]->exchange_;
  for (Arrival& each : burst) each.kept = exchange.receive(each.from, each.packet, each.bytes, now_);
}

void BenchRing::finish(std::span<const Arrival> burst) noexcept {
  for (const Arrival& each : burst) {
    if (!each.kept) pool_.give(each.packet);
  }
}

// Copies the packets that were sent, as a network does. Only then can the released buffers be used again.
void BenchRing::deliver(RingNode& node) {
  const unsigned rank =
      static_cast<unsigned>(std::ranges::find(nodes_, &node, &std::unique_ptr<RingNode>::get) - nodes_.begin());
  for (const RingNode::Sent& sent : node.sent_) {
    const Arrival arrival{pool_.take(), sent.bytes, rank, false};
    if (!arrival.packet) throw SetupError("a benchmark has too few packet buffers: this is a bug in gradlane");
    std::memcpy(arrival.packet.data, sent.packet.data, sent.bytes);
    RingNode& to = *nodes_[sent.to];
    (sent.to == (rank + 1) % kWorld ? to.from_predecessor : to.from_successor).push_back(arrival);
    moves_ += is_data(arrival) ? 1 : 0;
  }
  node.sent_.clear();
  for (const Packet packet : node.released_) pool_.give(packet);
  node.released_.clear();
}

void BenchRing::run_dry() {
  uint64_t last_move = moves_;
  for (unsigned idle = 0; idle < kIdleRounds; ++idle) {
    for (unsigned rank = 0; rank < kWorld; ++rank) serve(rank);
    if (std::exchange(last_move, moves_) != moves_) idle = 0;
  }
}

}  // namespace gradlane
