// ring.cc - mode ring: all-reduces between two ranks, one on each port (the loopback's one thread)
#include <rte_cycles.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "collectives/exchange/exchange.h"
#include "collectives/wire.h"
#include "dataplane/device/eal.h"
#include "dataplane/loopback/ports.h"

namespace gradlane {
namespace {

constexpr Nanos kTimeout = 2 * kSecond;  // longest time without progress; there is no network that could take longer

ExchangeConfig exchange_config(const LoopbackConfig& config, unsigned rank) {
  ExchangeConfig exchange;
  exchange.world = 2;
  exchange.rank = rank;
  exchange.incarnation = clock_now() | 1;
  exchange.mtu = config.frame_bytes - kFrameBytes;
  exchange.codec = config.codec;
  exchange.max_bytes = std::max(config.tensor_floats * sizeof(float), kGranuleBytes);
  exchange.peer_timeout = exchange.start_timeout = kTimeout;
  return exchange;
}

// A rank, and the port that it sends to.
class Rank final : public PacketIo {
 public:
  Rank(const LoopbackConfig& config, unsigned rank, LoopbackPorts& ports, LoopbackFigures& figures)
      : rank_(rank),
        ports_(ports),
        figures_(figures),
        burst_(static_cast<uint16_t>(config.burst)),
        tensor_(config.tensor_floats),
        exchange_(exchange_config(config, rank), *this) {
    // Both ranks have the same data and average it. So values neither grow nor vanish, however often that is done.
    for (size_t i = 0; i < tensor_.size(); ++i) tensor_[i] = config.data[i % kLoopbackFloats];
  }
  ~Rank() override { rte_pktmbuf_free_bulk(queue_.data(), queued_); }

  void submit(Nanos now);
  void receive(rte_mbuf* mbuf, const ParsedFrame& parsed, Nanos now) noexcept;
  void poll(Nanos now, bool more);
  void flush() noexcept;

  [[nodiscard]] uint64_t submitted() const noexcept { return submitted_; }
  [[nodiscard]] uint64_t completed() const noexcept { return completed_; }
  [[nodiscard]] bool busy() const noexcept { return submitted_ != completed_; }
  [[nodiscard]] const std::vector<float>& tensor() const noexcept { return tensor_; }

  [[nodiscard]] Packet allocate() noexcept override;
  void release(Packet packet) noexcept override { rte_pktmbuf_free(static_cast<rte_mbuf*>(packet.handle)); }
  [[nodiscard]] bool transmit(unsigned rank, Packet packet, size_t bytes) noexcept override;

 private:
  unsigned rank_;
  LoopbackPorts& ports_;
  LoopbackFigures& figures_;
  uint16_t burst_;
  std::array<rte_mbuf*, kMaxLoopbackBurst> queue_{};  // packets to be sent
  uint16_t queued_ = 0;
  std::vector<float> tensor_;
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;
  Exchange exchange_;  // last member, so it is destroyed first and returns its buffers while `ports_` exists
};

Packet Rank::allocate() noexcept {
  rte_mbuf* const mbuf = ports_.pool().allocate();
  return mbuf == nullptr ? Packet{} : packet_of(mbuf);
}

// Sends a copy. In-process rings pass on the buffer itself, and the exchange may want to write to it and send it again.
bool Rank::transmit(unsigned rank, Packet packet, size_t bytes) noexcept {
  if (queued_ == burst_) flush();
  if (queued_ == burst_) return false;
  rte_mbuf* const copy = ports_.pool().allocate();
  if (copy == nullptr) return false;
  char* const frame = rte_pktmbuf_append(copy, static_cast<uint16_t>(kFrameBytes + bytes));
  if (frame == nullptr) {
    rte_pktmbuf_free(copy);
    return false;
  }
  auto* const to = rte_pktmbuf_mtod(copy, uint8_t*);
  write_headers(to, loopback_flow(rank_, rank), kLoopbackClassifier.tos_of(class_of(packet.data, bytes)), bytes);
  std::memcpy(to + kFrameBytes, packet.data, bytes);
  queue_[queued_++] = copy;
  return true;
}

void Rank::flush() noexcept {
  if (queued_ == 0) return;
  const uint16_t sent = rte_eth_tx_burst(ports_[rank_], 0, queue_.data(), queued_);
  figures_.sent += sent;
  queued_ = static_cast<uint16_t>(queued_ - sent);
  std::memmove(queue_.data(), queue_.data() + sent, queued_ * sizeof(queue_[0]));
}

void Rank::receive(rte_mbuf* mbuf, const ParsedFrame& parsed, Nanos now) noexcept {
  if (!exchange_.receive(1 - rank_, packet_of(mbuf), parsed.bytes, now)) rte_pktmbuf_free(mbuf);
}

void Rank::submit(Nanos now) {
  Operation operation;
  operation.reduction = Reduction::kAverage;
  operation.tag = submitted_;
  operation.count = tensor_.size();
  operation.data = tensor_.data();
  if (exchange_.submit(operation, now).refusal != Exchange::Refusal::kNone) {
    throw SetupError("mode ring: the exchange refused an all-reduce");
  }
  ++submitted_;
}

// The next all-reduce begins when the previous one has ended.
void Rank::poll(Nanos now, bool more) {
  Completion completion;
  while (exchange_.next_completion(completion)) {
    if (completion.failure) {
      throw SetupError("mode ring: an all-reduce failed on rank " + std::to_string(rank_) + ": " +
                       failure_text(completion.failure) + "; check that the devices return what is sent to them");
    }
    ++completed_;
  }
  if (more && !busy()) submit(now);
  exchange_.poll(now);
  flush();
}

class Ring final : public LoopbackEngine {
 public:
  explicit Ring(const LoopbackConfig& config)
      : burst_(static_cast<uint16_t>(config.burst)), ports_(config), ranks_{make(config, 0), make(config, 1)} {}

  void run(uint64_t end) override {
    repeat(end, [this] { round(true); });
    figures.operations = std::min(ranks_[0]->completed(), ranks_[1]->completed());
  }
  void stop() override;

 private:
  std::unique_ptr<Rank> make(const LoopbackConfig& config, unsigned rank) {
    return std::make_unique<Rank>(config, rank, ports_, figures);
  }
  void round(bool more);
  void receive(uint16_t port, Nanos now) noexcept;

  uint16_t burst_;
  LoopbackPorts ports_;
  std::array<std::unique_ptr<Rank>, 2> ranks_;
};

void Ring::round(bool more) {
  for (size_t i = 0; i < kLoopbackPorts; ++i) receive(ports_[i], clock_now());
  const Nanos now = clock_now();
  for (const auto& rank : ranks_) rank->poll(now, more);
}

// A device may return packets at its own port or at the other one, so the destination address selects the rank.
void Ring::receive(uint16_t port, Nanos now) noexcept {
  std::array<rte_mbuf*, kMaxLoopbackBurst> burst;
  const uint16_t count = rte_eth_rx_burst(port, 0, burst.data(), burst_);
  figures.received += count;
  for (uint16_t i = 0; i < count; ++i) {
    rte_mbuf* const mbuf = burst[i];
    const std::span<const uint8_t> frame(rte_pktmbuf_mtod(mbuf, const uint8_t*), mbuf->data_len);
    figures.bytes += frame.size();
    const size_t to = frame.size() < kEthernetBytes ? 0 : frame[5] % kLoopbackNodes.size();
    const ParsedFrame parsed = parse_frame(frame, kLoopbackNodes[to], kLoopbackClassifier);
    ++figures.classes[static_cast<size_t>(parsed.traffic)];
    if (parsed.verdict == FrameVerdict::kGradlane) {
      ranks_[to]->receive(mbuf, parsed, now);
    } else {
      ++figures.drops[static_cast<size_t>(parsed.verdict)];
      rte_pktmbuf_free(mbuf);
    }
  }
}

void Ring::stop() {
  // One rank may have begun an all-reduce that the other has not. Here the other one follows, until both have done the
  // same number.
  const Nanos end = clock_now() + kTimeout;
  const uint64_t most = std::max(ranks_[0]->submitted(), ranks_[1]->submitted());
  while (std::min(ranks_[0]->completed(), ranks_[1]->completed()) != most) {
    for (const auto& rank : ranks_) {
      if (!rank->busy() && rank->submitted() != most) rank->submit(clock_now());
    }
    round(false);
    if (clock_now() > end) throw SetupError("mode ring: the last all-reduce did not end in time");
  }
  figures.operations = ranks_[0]->completed();
  const std::vector<float>& here = ranks_[0]->tensor();
  figures.identical = std::memcmp(here.data(), ranks_[1]->tensor().data(), here.size() * sizeof(float)) == 0;
  drain(ports_);
}

}  // namespace

std::unique_ptr<LoopbackEngine> make_loopback_ring(const LoopbackConfig& config) {
  return std::make_unique<Ring>(config);
}

}  // namespace gradlane
