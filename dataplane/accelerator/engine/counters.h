// counters.h - counters of packets in the accelerator's engine
#pragma once

#include <cstdint>

#include "base/counter_set.h"

namespace gradlane::accel {

// Counters count packets, unless their text says otherwise. A *marked* packet comes from the host with tos.compressed.
enum class Counter : uint8_t {
  kFromHost,
  kFromWire,
  kMarked,
  kCompressed,
  kPayloadBytes,
  kCompressedBytes,
  kResent,
  kWireFrames,
  kRawNoPeer,
  kRawSmall,
  kRawSize,
  kRawNoGain,
  kRawShape,
  kRawFlags,
  kRawUnknown,
  kRawSentBefore,
  kRawNoMemory,
  kRawChecksum,
  kOverwritten,
  kChecksumFinished,
  kWireChecksumFinished,
  kBlocked,
  kSuperSegment,
  kWireTos,
  kWireTosDropped,
  kUnescaped,
  kRestored,
  kRestoredFrames,
  kNoBuffer,
  kHelloSent,
  kHelloReceived,
  kHelloOthers,
  kForeign,
  kHelloAnswers,
  kHelloRefused,
  kWireDropped,
  kCount
};
inline constexpr CounterRow<Counter> kCounterRows[] = {
    {Counter::kFromHost, "from_host", "came from the host"},
    {Counter::kFromWire, "from_wire", "came from the wire"},
    {Counter::kMarked, "marked", "marked ones that came from the host"},
    {Counter::kCompressed, "compressed", "marked ones sent compressed"},
    {Counter::kPayloadBytes, "payload_bytes", "bytes of payload of those"},
    {Counter::kCompressedBytes, "compressed_bytes", "bytes that this payload has on the wire"},
    {Counter::kResent, "resent", "of the compressed ones: retransmissions, of the very same bytes"},
    {Counter::kWireFrames, "wire_frames", "frames on the wire that the compressed ones were sent in"},
    {Counter::kRawNoPeer, "raw_no_peer", "marked ones sent uncompressed: no accelerator answers at their destination"},
    {Counter::kRawSmall, "raw_small", "likewise: without payload, or too little of it"},
    {Counter::kRawSize, "raw_size", "likewise: a UDP payload that is not a multiple of four bytes"},
    {Counter::kRawNoGain, "raw_no_gain", "likewise: compressed they would not be smaller"},
    {Counter::kRawShape, "raw_shape", "likewise: fragments, IP options, protocols other than UDP and TCP"},
    {Counter::kRawFlags, "raw_flags", "likewise: TCP segments with SYN, FIN, RST or URG"},
    {Counter::kRawUnknown, "raw_unknown", "likewise: of TCP connections that are not followed from their start"},
    {Counter::kRawSentBefore, "raw_sent_before",
     "likewise: TCP retransmissions of what went uncompressed, with other boundaries, or while no accelerator answers"},
    {Counter::kRawNoMemory, "raw_no_memory", "likewise: no memory to remember them until they are acknowledged"},
    {Counter::kRawChecksum, "raw_checksum",
     "likewise: their checksum is wrong, so that nothing is known of their payload"},
    {Counter::kOverwritten, "overwritten",
     "retransmissions in which values were put as they were sent before, compressed"},
    {Counter::kChecksumFinished, "checksum_finished", "packets whose checksum the host left to its device"},
    {Counter::kWireChecksumFinished, "wire_checksum_finished",
     "the same, of packets from the wire: its other end is in this machine"},
    {Counter::kBlocked, "blocked",
     "addresses given up for some minutes: hellos arrive there, and compressed segments do not"},
    {Counter::kSuperSegment, "super_segment", "dropped: longer than the MTU, from offloads that must be off"},
    {Counter::kWireTos, "wire_tos", "packets with tos.wire from the host, passed with the reserved bit of IP set"},
    {Counter::kWireTosDropped, "wire_tos_dropped", "dropped: they had that bit already"},
    {Counter::kUnescaped, "unescaped", "packets from the wire whose reserved bit was cleared again"},
    {Counter::kRestored, "restored", "packets restored for the host"},
    {Counter::kRestoredFrames, "restored_frames", "frames from the wire that they came in"},
    {Counter::kNoBuffer, "no_buffer", "dropped: no buffer was left for a restored packet"},
    {Counter::kHelloSent, "hello_sent", "questions sent whether an accelerator is there"},
    {Counter::kHelloReceived, "hello_received", "such questions answered"},
    {Counter::kHelloOthers, "hello_others", "dropped: such questions, not about this host"},
    {Counter::kForeign, "foreign", "passed: packets with tos.wire of hosts without an accelerator"},
    {Counter::kHelloAnswers, "hello_answers", "answers to our questions"},
    {Counter::kHelloRefused, "hello_refused", "dropped: answers to nothing that was asked"},
    {Counter::kWireDropped, "wire_dropped",
     "dropped: packets with tos.wire that are damaged, see the bundle_ counters"},
};
static_assert(is_complete(kCounterRows));
constexpr const auto& counter_rows(Counter) noexcept { return kCounterRows; }

using Counters = CounterSet<Counter>;

}  // namespace gradlane::accel
