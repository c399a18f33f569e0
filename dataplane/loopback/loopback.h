// loopback.h - packets that circulate between two ports, through nothing, the classifier, a codec or the exchange (one
// thread)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/time.h"
#include "compress/codec.h"
#include "dataplane/frame/frame.h"

namespace gradlane {

enum class LoopbackMode : uint8_t {
  kIo,        // forwards packets without parsing them
  kClassify,  // parses every frame; drops invalid ones and those for other nodes
  kCodec,     // like kClassify, and decodes and encodes again the payload of packets of class compressed
  kRing,      // all-reduces between two ranks, one on each port
};

struct LoopbackConfig {
  std::array<std::string, 2> devices{"net_ring0", "net_ring1"};  // DPDK devargs
  LoopbackMode mode = LoopbackMode::kIo;
  unsigned burst = 32;  // packets, 1 to kMaxLoopbackBurst
  size_t packets = 32;  // packets on each port at the start; not in mode ring
  // bytes with the Ethernet header; at least kMinLoopbackFrame (kMinLoopbackPacket for codec, ring)
  size_t frame_bytes = 0;
  Codec codec = find_codec(kDefaultLossyCodec);
  std::span<const float> data;  // contents of packets and tensors; at least kLoopbackFloats elements
  size_t tensor_floats = 0;     // mode ring
};

inline constexpr unsigned kMaxLoopbackBurst = 512;
inline constexpr size_t kMinLoopbackFrame = 64;
inline constexpr size_t kMinLoopbackPacket = 298;
inline constexpr size_t kMaxLoopbackFrame = 9014;
inline constexpr size_t kLoopbackFloats = size_t{1} << 17;

// Reasons why packets were dropped: the verdicts of frame.h, then these.
enum LoopbackDrop : size_t {
  kDropBadPayload = static_cast<size_t>(FrameVerdict::kCount),  // payload that the codec has not made
  kDropTransmitFull,                                            // the port took no more
  kLoopbackDrops
};
[[nodiscard]] const char* loopback_drop_name(size_t drop) noexcept;
// Returns whether this is a reason to drop a packet here. It is false for the verdicts kGradlane and kHost.
[[nodiscard]] bool loopback_drops(size_t drop) noexcept;

// Counters since the start. If no packets come from outside, primed = left + drops. Then also received = sent + drops,
// except for packets that did not fit into the ports at the start. In mode ring, sent = received + left.
struct LoopbackFigures {
  uint64_t primed = 0;    // packets made at the start
  uint64_t received = 0;  // packets received from both ports
  uint64_t sent = 0;      // packets sent to both ports, without the primed ones
  uint64_t bytes = 0;     // bytes of received frames; mode io counts each frame like the first one of its burst
  uint64_t left = 0;      // packets still in the ports at the end
  std::array<uint64_t, kTrafficClasses> classes{};  // packets received, by traffic class; not in mode io
  std::array<uint64_t, kLoopbackDrops> drops{};
  uint64_t floats = 0;       // mode codec: number of values decoded and encoded
  uint64_t operations = 0;   // mode ring: number of all-reduces that both ranks have completed
  bool identical = true;     // mode ring: whether both ranks have ended with the same bytes
  uint64_t busy_cycles = 0;  // cycles of the time stamp counter while packets moved
  uint64_t idle_cycles = 0;  // cycles while no packet moved
};

class LoopbackEngine;

// Runs everything in one thread. Only one object may exist per process, since it starts EAL.
class Loopback {
 public:
  // Throws SetupError if DPDK does not have a device or cannot start it, or if there is too little memory. Block
  // signals before.
  explicit Loopback(const LoopbackConfig& config);
  ~Loopback();
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;

  // Moves packets for about `duration`. Throws SetupError if an all-reduce fails, which happens only if a device does
  // not return packets.
  void run(Nanos duration);
  // Completes all-reduces in flight, and takes the packets out of the ports.
  void stop();
  [[nodiscard]] const LoopbackFigures& figures() const noexcept;

 private:
  std::unique_ptr<LoopbackEngine> engine_;
};

}  // namespace gradlane
