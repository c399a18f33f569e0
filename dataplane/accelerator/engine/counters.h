// counters.h - what becomes of packets in the accelerator's engine
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gradlane::accel {

// Packets, if not said otherwise. "Marked" is what has tos.compressed when it comes from the host.
#define GRADLANE_ACCELERATOR_COUNTERS(X)                                                                               \
  X(FromHost, "from_host", "came from the host")                                                                       \
  X(FromWire, "from_wire", "came from the wire")                                                                       \
  X(Marked, "marked", "marked ones that came from the host")                                                           \
  X(Compressed, "compressed", "marked ones sent compressed")                                                           \
  X(PayloadBytes, "payload_bytes", "bytes of payload of those")                                                        \
  X(CompressedBytes, "compressed_bytes", "bytes that this payload has on the wire")                                    \
  X(Resent, "resent", "of the compressed ones: retransmissions, of the very same bytes")                               \
  X(WireFrames, "wire_frames", "frames on the wire that the compressed ones were sent in")                             \
  X(RawNoPeer, "raw_no_peer", "marked ones sent uncompressed: no accelerator answers at their destination")            \
  X(RawSmall, "raw_small", "likewise: without payload, or too little of it")                                           \
  X(RawSize, "raw_size", "likewise: a UDP payload that is not a multiple of four bytes")                               \
  X(RawNoGain, "raw_no_gain", "likewise: compressed they would not be smaller")                                        \
  X(RawShape, "raw_shape", "likewise: fragments, IP options, protocols other than UDP and TCP")                        \
  X(RawFlags, "raw_flags", "likewise: TCP segments with SYN, FIN, RST or URG")                                         \
  X(RawUnknown, "raw_unknown", "likewise: of TCP connections that are not followed from their start")                  \
  X(RawSentBefore, "raw_sent_before",                                                                                  \
    "likewise: TCP retransmissions of what went uncompressed, with other boundaries, or while no accelerator answers") \
  X(RawNoMemory, "raw_no_memory", "likewise: no memory to remember them until they are acknowledged")                  \
  X(RawChecksum, "raw_checksum", "likewise: their checksum is wrong, so that nothing is known of their payload")       \
  X(Overwritten, "overwritten", "retransmissions in which values were put as they were sent before, compressed")       \
  X(ChecksumFinished, "checksum_finished", "packets whose checksum the host left to its device")                       \
  X(WireChecksumFinished, "wire_checksum_finished",                                                                    \
    "the same, of packets from the wire: its other end is in this machine")                                            \
  X(Blocked, "blocked", "addresses given up for some minutes: hellos arrive there, and compressed segments do not")    \
  X(SuperSegment, "super_segment", "dropped: longer than the MTU, from offloads that must be off")                     \
  X(WireTos, "wire_tos", "packets with tos.wire from the host, passed with the reserved bit of IP set")                \
  X(WireTosDropped, "wire_tos_dropped", "dropped: they had that bit already")                                          \
  X(Unescaped, "unescaped", "packets from the wire whose reserved bit was cleared again")                              \
  X(Restored, "restored", "packets restored for the host")                                                             \
  X(RestoredFrames, "restored_frames", "frames from the wire that they came in")                                       \
  X(NoBuffer, "no_buffer", "dropped: no buffer was left for a restored packet")                                        \
  X(HelloSent, "hello_sent", "questions sent whether an accelerator is there")                                         \
  X(HelloReceived, "hello_received", "such questions answered")                                                        \
  X(HelloOthers, "hello_others", "dropped: such questions, not about this host")                                       \
  X(Foreign, "foreign", "passed: packets with tos.wire of hosts without an accelerator")                               \
  X(HelloAnswers, "hello_answers", "answers to our questions")                                                         \
  X(HelloRefused, "hello_refused", "dropped: answers to nothing that was asked")                                       \
  X(WireDropped, "wire_dropped", "dropped: packets with tos.wire that are damaged, see the bundle_ counters")

enum class Counter : uint8_t {
#define GRADLANE_ACCELERATOR_ENUM(symbol, name, help) k##symbol,
  GRADLANE_ACCELERATOR_COUNTERS(GRADLANE_ACCELERATOR_ENUM)
#undef GRADLANE_ACCELERATOR_ENUM
      kCount
};
[[nodiscard]] const char* counter_name(Counter counter) noexcept;

class Counters {
 public:
  static constexpr size_t kSize = static_cast<size_t>(Counter::kCount);
  void add(Counter counter, uint64_t n = 1) noexcept { values_[static_cast<size_t>(counter)] += n; }
  [[nodiscard]] uint64_t operator[](Counter counter) const noexcept { return values_[static_cast<size_t>(counter)]; }
  [[nodiscard]] uint64_t operator[](size_t i) const noexcept { return values_[i]; }

 private:
  std::array<uint64_t, kSize> values_{};
};

}  // namespace gradlane::accel
