// tcp_streams.h - decides which bytes of TCP streams may be compressed, and keeps compressed segments for
// retransmissions (worker thread only; no DPDK)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/counter_set.h"
#include "base/time.h"
#include "compress/codec.h"
#include "dataplane/accelerator/engine/packet_view.h"
#include "dataplane/accelerator/engine/sent_records.h"
#include "dataplane/accelerator/engine/stream_table.h"

namespace gradlane::accel {

enum class StreamFigure : uint8_t {
  kBegun,
  kEvicted,
  kNotTracked,
  kGiven,
  kEnded,
  kIdle,
  kIdleRecords,
  kRemembered,
  kNoMemory,
  kSentAgain,
  kOverwritten,
  kBadAck,
  kUnreadable,
  // gauges: present values
  kTracked,
  kMost,
  kRecords,
  kRecordMemory,
  kMostRecordMemory,
  kCount
};
inline constexpr CounterRow<StreamFigure> kStreamFigureRows[] = {
    {StreamFigure::kBegun, "stream_begun", "TCP connections that were tracked from their start"},
    {StreamFigure::kEvicted, "stream_evicted",
     "tracked connections that were forgotten to make room for others; uncompressed from then on"},
    {StreamFigure::kNotTracked, "stream_not_tracked",
     "TCP connections that were not tracked, because there was no room; uncompressed"},
    {StreamFigure::kGiven, "stream_given_up",
     "connections no longer tracked because of IP options, fragments or an unclear start; uncompressed"},
    {StreamFigure::kEnded, "stream_ended", "connections forgotten at their end"},
    {StreamFigure::kIdle, "stream_idle", "connections forgotten because they were idle"},
    {StreamFigure::kIdleRecords, "stream_idle_records",
     "compressed segments forgotten with idle connections, without an acknowledgement"},
    {StreamFigure::kRemembered, "stream_remembered", "compressed segments kept until they were acknowledged"},
    {StreamFigure::kNoMemory, "stream_no_memory",
     "segments sent uncompressed, because there was no memory to keep them"},
    {StreamFigure::kSentAgain, "stream_sent_again", "retransmissions sent as the same compressed segments"},
    {StreamFigure::kOverwritten, "stream_overwritten",
     "retransmissions with other boundaries, sent with restored values"},
    {StreamFigure::kBadAck, "stream_bad_ack", "acknowledgements of data that was never sent"},
    {StreamFigure::kUnreadable, "stream_unreadable",
     "kept segments that could not be restored; if it is not 0, this is a bug"},
    {StreamFigure::kTracked, "stream_tracked", "TCP connections tracked now"},
    {StreamFigure::kMost, "stream_most", "TCP connections that can be tracked"},
    {StreamFigure::kRecords, "stream_records", "compressed segments kept now"},
    {StreamFigure::kRecordMemory, "stream_record_bytes", "bytes of memory that the kept segments take"},
    {StreamFigure::kMostRecordMemory, "stream_record_bytes_most", "bytes of memory that kept segments may take"},
};
static_assert(is_complete(kStreamFigureRows));
constexpr const auto& counter_rows(StreamFigure) noexcept { return kStreamFigureRows; }

struct Segment {
  FlowKey key;
  uint32_t seq = 0, ack = 0;
  uint8_t flags = 0;
  size_t bytes = 0;   // length of the payload
  bool plain = true;  // false: IP options, a fragment, or TCP options with which no byte may be changed
};

// Every byte of a stream has one value on the wire, however often and in whatever pieces it is sent. A receiver may
// keep any part of each transmission. So no float that it reads ever mixes exact and lossy bytes.
//
// - Byte n of a stream has the sequence number base + n, with base = ISN + 1. So the accelerator must see the SYN.
//   Floats start at the bytes whose n is a multiple of 4.
// - `sent_end` is the number after the highest byte ever seen. A segment at or after it is *fresh*: no byte of it was
//   ever sent. Only floats that lie completely within one fresh segment are sent lossy. At that moment their value is
//   decided. Bytes that are missing before a fresh segment were lost inside the host. They count as sent, exact.
// - A fresh segment that is compressed is remembered, as a record, until a cumulative acknowledgement covers all of it.
//   From then on receivers discard every copy. (SACK does not count: a receiver may take it back.)
// - Any other segment with data is a retransmission, even if only its first byte was sent before. If there is a record
//   of exactly the same bytes, that record is sent. Otherwise the segment is sent uncompressed. Bytes that are covered
//   by records then have the values that the records restore to. All other bytes were sent exact before, and are sent
//   exact again.
// - A stream without records can be forgotten at any time. Its bytes in flight are exact and stay exact, and nothing is
//   compressed any more. So the table may evict such streams, and no others.
class TcpStreams {
 public:
  static constexpr uint32_t kNone = StreamTable::kNone;

  struct Setup {
    size_t streams = 65536;
    size_t memory = size_t{64} << 20;  // limit of memory for records
    uint64_t seed = 0;                 // random; without it, others could choose which streams fall into one bucket
    // Time of silence until a stream is forgotten. A host whose packets do not arrive may wait minutes between two
    // retransmissions. Then the records must still be there.
    Nanos idle = 600 * kSecond;
    Nanos closing = 10 * kSecond;  // time until a stream is forgotten after a RST from the peer
  };
  // Allocates everything.
  TcpStreams(const Codec& codec, const Setup& setup);

  enum class Treatment : uint8_t { kUntouched, kFresh, kSentBefore };
  // The decision on one segment. It is valid until the next segment comes.
  struct Decision {
    Treatment treatment = Treatment::kUntouched;
    unsigned lead = 0;  // kFresh: bytes before the first float
    uint32_t stream = kNone;
  };

  // Decides how a TCP segment from host to wire is sent. Call it for every segment, in order, whatever its ToS.
  //
  // - kUntouched: The stream is unknown, or there is nothing to do. Send the segment as it is.
  // - kFresh: The floats from `lead` on may be compressed, if remember() returns true for the record before it is sent.
  // - kSentBefore: Send the record of again(). If there is none, call overwrite() and send the payload uncompressed.
  //   overwrite() changes nothing in a payload that was sent exact.
  [[nodiscard]] Decision from_host(const Segment& segment, Nanos now) noexcept;
  // Keeps the record of a kFresh segment. Returns false if there is no memory: then send the segment as it is.
  [[nodiscard]] bool remember(const Decision& decision, const Segment& segment,
                              std::span<const uint8_t> record) noexcept;
  // Copies the record of exactly these bytes into `out`, and returns its length. Returns 0 if there is none, if the
  // stream was given up, or if the segment's flags forbid compression.
  [[nodiscard]] size_t again(const Decision& decision, const Segment& segment, std::span<uint8_t> out) noexcept;
  // Returns whether the stream of a kSentBefore segment waits for acknowledgements of compressed segments, and none
  // arrived for 3 s. The time before `since` does not count. Returns false for other segments and after give_up().
  [[nodiscard]] bool stuck(const Decision& decision, Nanos since, Nanos now) const noexcept;
  // Stops compression of the stream, retransmissions included. Bytes that were sent lossy keep their lossy values.
  void give_up(const Decision& decision) noexcept;
  // Replaces the bytes of `payload`, the segment's payload, that records cover by the values that the records restore
  // to. Returns true if there are such bytes. Then the checksum must be computed again.
  [[nodiscard]] bool overwrite(const Decision& decision, const Segment& segment, std::span<uint8_t> payload) noexcept;

  // Handles a TCP segment from wire to host with ACK, RST or FIN. Its `key` is as it arrived, and its checksum must be
  // right.
  void from_wire(const Segment& segment, Nanos now) noexcept;
  // Returns whether any stream has records. If not, from_wire() needs no segments that only acknowledge.
  [[nodiscard]] bool any_records() const noexcept { return records_.records() != 0; }

  // Forgets streams that were silent for too long, in a small part of the table. Call it about 100 times a second.
  void sweep(Nanos now) noexcept;

  [[nodiscard]] size_t streams() const noexcept { return table_.size(); }
  [[nodiscard]] size_t records() const noexcept { return records_.records(); }
  [[nodiscard]] size_t record_bytes() const noexcept { return records_.memory_used(); }

  [[nodiscard]] uint64_t figure(StreamFigure figure) const noexcept { return figures()[figure]; }
  [[nodiscard]] CounterSet<StreamFigure> figures() const noexcept;

 private:
  void count(StreamFigure counter, uint64_t n = 1) noexcept { counters_.add(counter, n); }
  [[nodiscard]] uint32_t from_syn(const Segment& segment) noexcept;
  [[nodiscard]] bool goes_on(Stream& stream, const Segment& segment) noexcept;
  [[nodiscard]] Decision decide(uint32_t index, const Segment& segment) noexcept;
  void forget(uint32_t index, StreamFigure why) noexcept;

  const Codec codec_;
  const Nanos idle_, closing_;
  StreamTable table_;
  SentRecords records_;
  std::vector<uint8_t> record_, payload_;  // buffers of overwrite()
  size_t swept_ = 0;                       // bucket at which sweep() continues
  CounterSet<StreamFigure> counters_;      // gauges stay 0 here
};

}  // namespace gradlane::accel
