// loopback.h - packets in circles through two ports, with nothing, the classifier, a codec or the exchange in between
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
  kIo,        // forwards without a look inside
  kClassify,  // parses every frame; drops what is broken or not for this node
  kCodec,     // the same, and decodes and encodes again what packets of class compressed carry
  kRing,      // all-reduces between two ranks, one on each port
};

struct LoopbackConfig {
  std::array<std::string, 2> devices{"net_ring0", "net_ring1"};  // DPDK devargs
  LoopbackMode mode = LoopbackMode::kIo;
  unsigned burst = 32;     // packets, 1 to kMaxLoopbackBurst
  size_t packets = 32;     // to start with, on each port; not in mode ring
  size_t frame_bytes = 0;  // with the Ethernet header; at least kMinLoopbackFrame (kMinLoopbackPacket for codec, ring)
  Codec codec = find_codec(kDefaultLossyCodec);
  std::span<const float> data;  // what packets and tensors are filled with; at least kLoopbackFloats
  size_t tensor_floats = 0;     // mode ring
};

inline constexpr unsigned kMaxLoopbackBurst = 512;
inline constexpr size_t kMinLoopbackFrame = 64;
inline constexpr size_t kMinLoopbackPacket = 298;
inline constexpr size_t kMaxLoopbackFrame = 9014;
inline constexpr size_t kLoopbackFloats = size_t{1} << 17;

// Why packets left the circle: the verdicts of frame.h, then these.
enum LoopbackDrop : size_t {
  kDropBadPayload = static_cast<size_t>(FrameVerdict::kCount),  // not made by the codec
  kDropTransmitFull,                                            // the port took no more
  kLoopbackDrops
};
[[nodiscard]] const char* loopback_drop_name(size_t drop) noexcept;
// False for verdicts that are no reason to drop a packet here.
[[nodiscard]] bool loopback_drops(size_t drop) noexcept;

// All count from the start. Where no packets come from outside, primed = left + drops, and received = sent + drops but
// for those that did not even fit into the ports at first; in mode ring sent = received + left.
struct LoopbackFigures {
  uint64_t primed = 0;    // packets made at the start
  uint64_t received = 0;  // from both ports
  uint64_t sent = 0;      // to both ports, primed ones apart
  uint64_t bytes = 0;     // of received frames; mode io looks at the first frame of each burst only
  uint64_t left = 0;      // still on their way when it ended
  std::array<uint64_t, kTrafficClasses> classes{};  // received; not in mode io
  std::array<uint64_t, kLoopbackDrops> drops{};
  uint64_t floats = 0;       // mode codec: decoded and encoded
  uint64_t operations = 0;   // mode ring: all-reduces that both ranks have completed
  bool identical = true;     // mode ring: both ranks ended with the same bytes
  uint64_t busy_cycles = 0;  // of the time stamp counter, while packets moved
  uint64_t idle_cycles = 0;  // while none did
};

class LoopbackEngine;

// One thread does everything. At most one per process, since it starts EAL.
class Loopback {
 public:
  // Throws SetupError: a device that DPDK does not have or cannot start, too little memory. Block signals before.
  explicit Loopback(const LoopbackConfig& config);
  ~Loopback();
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;

  // Moves packets for about so long. Throws SetupError if an all-reduce fails, which takes a device that does not bring
  // packets back.
  void run(Nanos duration);
  // Ends what is under way, and takes the packets out of the ports.
  void stop();
  [[nodiscard]] const LoopbackFigures& figures() const noexcept;

 private:
  std::unique_ptr<LoopbackEngine> engine_;
};

}  // namespace gradlane
