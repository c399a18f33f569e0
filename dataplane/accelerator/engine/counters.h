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
    {Counter::kFromHost, "from_host", "packets from the host"},
    {Counter::kFromWire, "from_wire", "packets from the wire"},
    {Counter::kMarked, "marked", "marked packets from the host"},
    {Counter::kCompressed, "compressed", "marked packets sent compressed"},
    {Counter::kPayloadBytes, "payload_bytes", "bytes of payload of the packets sent compressed"},
    {Counter::kCompressedBytes, "compressed_bytes", "bytes that this payload has on the wire, compressed"},
    {Counter::kResent, "resent", "packets sent compressed that are retransmissions of exactly the same bytes"},
    {Counter::kWireFrames, "wire_frames", "frames on the wire that contain the packets sent compressed"},
    {Counter::kRawNoPeer, "raw_no_peer",
     "marked packets sent uncompressed: no accelerator answers at their destination"},
    {Counter::kRawSmall, "raw_small", "marked packets sent uncompressed: no payload, or too little"},
    {Counter::kRawSize, "raw_size",
     "marked packets sent uncompressed: a UDP payload that is not a multiple of four bytes"},
    {Counter::kRawNoGain, "raw_no_gain", "marked packets sent uncompressed: compressed, they would not be smaller"},
    {Counter::kRawShape, "raw_shape",
     "marked packets sent uncompressed: fragments, IP options, or neither UDP nor TCP"},
    {Counter::kRawFlags, "raw_flags", "marked packets sent uncompressed: TCP segments with SYN, FIN, RST or URG"},
    {Counter::kRawUnknown, "raw_unknown",
     "marked packets sent uncompressed: the start of their TCP connection was not seen"},
    {Counter::kRawSentBefore, "raw_sent_before",
     "marked packets sent uncompressed: TCP retransmissions of uncompressed data, with other boundaries, or while no "
     "accelerator answers"},
    {Counter::kRawNoMemory, "raw_no_memory",
     "marked packets sent uncompressed: no memory to keep them until they are acknowledged"},
    {Counter::kRawChecksum, "raw_checksum",
     "marked packets sent uncompressed: their checksum is wrong, so their payload may be damaged"},
    {Counter::kOverwritten, "overwritten",
     "retransmissions whose values were replaced by those that were sent before, compressed"},
    {Counter::kChecksumFinished, "checksum_finished", "packets from the host whose checksum was left to the device"},
    {Counter::kWireChecksumFinished, "wire_checksum_finished",
     "packets from the wire whose checksum was left to the device: their sender is on this machine"},
    {Counter::kBlocked, "blocked",
     "times that an address got nothing compressed for some minutes: hellos arrive there, but compressed segments do "
     "not"},
    {Counter::kSuperSegment, "super_segment", "dropped: longer than the MTU, from offloads that must be off"},
    {Counter::kWireTos, "wire_tos", "packets with tos.wire from the host, passed with the reserved bit of IP set"},
    {Counter::kWireTosDropped, "wire_tos_dropped",
     "dropped: packets with tos.wire from the host that had the reserved bit of IP set already"},
    {Counter::kUnescaped, "unescaped", "packets from the wire whose reserved bit was cleared again"},
    {Counter::kRestored, "restored", "packets restored for the host"},
    {Counter::kRestoredFrames, "restored_frames", "frames from the wire that contained the restored packets"},
    {Counter::kNoBuffer, "no_buffer", "dropped: no buffer was left for a restored packet"},
    {Counter::kHelloSent, "hello_sent", "hellos sent, which ask whether an accelerator is there"},
    {Counter::kHelloReceived, "hello_received", "hellos received and answered"},
    {Counter::kHelloOthers, "hello_others", "dropped: hellos that are not for this host"},
    {Counter::kForeign, "foreign", "passed: packets with tos.wire of hosts without an accelerator"},
    {Counter::kHelloAnswers, "hello_answers", "answers to hellos of this accelerator"},
    {Counter::kHelloRefused, "hello_refused", "dropped: answers to hellos that this accelerator did not send"},
    {Counter::kWireDropped, "wire_dropped",
     "dropped: packets with tos.wire that are damaged, see the bundle_ counters"},
};
static_assert(is_complete(kCounterRows));
constexpr const auto& counter_rows(Counter) noexcept { return kCounterRows; }

using Counters = CounterSet<Counter>;

}  // namespace gradlane::accel
