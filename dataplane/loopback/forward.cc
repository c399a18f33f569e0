// forward.cc - modes io, classify and codec: from one port to the other and back (the loopback's one thread)
#include <vector>

#include "base/error.h"
#include "dataplane/loopback/frames.h"
#include "dataplane/loopback/ports.h"

namespace gradlane {
namespace {

std::span<uint8_t> frame_bytes(rte_mbuf* mbuf) { return {rte_pktmbuf_mtod(mbuf, uint8_t*), mbuf->data_len}; }

class Forward final : public LoopbackEngine {
 public:
  explicit Forward(const LoopbackConfig& config)
      : mode_(config.mode),
        burst_(static_cast<uint16_t>(config.burst)),
        codec_(config.codec),
        floats_(kMaxRunFloats),
        ports_(config) {
    prime(config);
  }

  void run(uint64_t end) override {
    switch (mode_) {
      case LoopbackMode::kClassify:
        return run<LoopbackMode::kClassify>(end);
      case LoopbackMode::kCodec:
        return run<LoopbackMode::kCodec>(end);
      default:
        return run<LoopbackMode::kIo>(end);
    }
  }
  void stop() override { drain(ports_); }

 private:
  using Burst = std::array<rte_mbuf*, kMaxLoopbackBurst>;

  void prime(const LoopbackConfig& config);
  template <LoopbackMode mode>
  void run(uint64_t end) {
    repeat(end, [this] {
      forward<mode>(ports_[0], ports_[1]);
      forward<mode>(ports_[1], ports_[0]);
    });
  }
  template <LoopbackMode mode>
  void forward(uint16_t from, uint16_t to) noexcept;
  template <LoopbackMode mode>
  uint16_t inspect(Burst& burst, uint16_t count) noexcept;
  void send_rest(Burst& burst, uint16_t sent, uint16_t count) noexcept;

  LoopbackMode mode_;
  uint16_t burst_;
  Codec codec_;
  std::vector<float> floats_;  // scratch of mode codec
  LoopbackPorts ports_;
};

void Forward::prime(const LoopbackConfig& config) {
  for (size_t i = 0; i < kLoopbackPorts * config.packets; ++i) {
    rte_mbuf* mbuf = ports_.pool().allocate();
    char* const room = mbuf == nullptr ? nullptr : rte_pktmbuf_append(mbuf, static_cast<uint16_t>(config.frame_bytes));
    if (room == nullptr) throw SetupError("too few packet buffers to start; set a smaller --packets");
    write_loopback_frame({rte_pktmbuf_mtod(mbuf, uint8_t*), config.frame_bytes}, config, i / kLoopbackPorts);
    ++figures.primed;
    if (rte_eth_tx_burst(ports_[i % kLoopbackPorts], 0, &mbuf, 1) == 0) {
      rte_pktmbuf_free(mbuf);
      ++figures.drops[kDropTransmitFull];
    }
  }
}

template <LoopbackMode mode>
inline void Forward::forward(uint16_t from, uint16_t to) noexcept {
  Burst burst;
  uint16_t count = rte_eth_rx_burst(from, 0, burst.data(), burst_);
  if (count == 0) return;
  figures.received += count;
  if constexpr (mode == LoopbackMode::kIo) {
    // testpmd does not read packets at all. Reading one packet per burst has no measurable cost.
    figures.bytes += uint64_t{count} * burst[0]->pkt_len;
  } else {
    count = inspect<mode>(burst, count);
    if (count == 0) return;
  }
  const uint16_t sent = rte_eth_tx_burst(to, 0, burst.data(), count);
  figures.sent += sent;
  if (sent != count) [[unlikely]]
    send_rest(burst, sent, count);
}

// Drops the packets that the port does not take, as a switch would.
void Forward::send_rest(Burst& burst, uint16_t sent, uint16_t count) noexcept {
  figures.drops[kDropTransmitFull] += static_cast<uint64_t>(count - sent);
  rte_pktmbuf_free_bulk(burst.data() + sent, static_cast<unsigned>(count - sent));
}

// Moves the packets to be forwarded to the front of `burst`, and returns their number. Drops the others.
template <LoopbackMode mode>
uint16_t Forward::inspect(Burst& burst, uint16_t count) noexcept {
  uint16_t kept = 0;
  for (uint16_t i = 0; i < count; ++i) {
    rte_mbuf* const mbuf = burst[i];
    const std::span<uint8_t> frame = frame_bytes(mbuf);
    figures.bytes += frame.size();
    const ParsedFrame parsed = parse_frame(frame, kLoopbackNodes[1], kLoopbackClassifier);
    ++figures.classes[static_cast<size_t>(parsed.traffic)];
    auto drop = static_cast<size_t>(parsed.verdict);
    bool goes_on = !loopback_drops(drop);
    if constexpr (mode == LoopbackMode::kCodec) {
      if (parsed.verdict == FrameVerdict::kGradlane && parsed.traffic == TrafficClass::kCompressed) {
        goes_on = recode_packet(frame.subspan(kFrameBytes, parsed.bytes), codec_, floats_, figures.floats);
        if (!goes_on) drop = kDropBadPayload;
      }
    }
    if (goes_on) {
      burst[kept++] = mbuf;
    } else {
      ++figures.drops[drop];
      rte_pktmbuf_free(mbuf);
    }
  }
  return kept;
}

}  // namespace

std::unique_ptr<LoopbackEngine> make_loopback_forward(const LoopbackConfig& config) {
  return std::make_unique<Forward>(config);
}

}  // namespace gradlane
