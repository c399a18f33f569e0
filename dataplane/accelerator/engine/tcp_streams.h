// tcp_streams.h - which bytes of TCP streams may be compressed, and what was sent before (worker thread only; no DPDK)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "compress/codec.h"
#include "dataplane/accelerator/engine/packet_view.h"
#include "dataplane/accelerator/engine/sent_records.h"
#include "dataplane/accelerator/engine/stream_table.h"

namespace gradlane::accel {

// clang-format off
#define GRADLANE_STREAM_COUNTERS(X)                                                                               \
  X(Begun, "stream_begun", "TCP connections whose start was seen, and that were followed from then on")           \
  X(Evicted, "stream_evicted", "of these, forgotten to make room for others; uncompressed from then on")          \
  X(NotTracked, "stream_not_tracked", "TCP connections not followed, as there was no room; uncompressed")         \
  X(Given, "stream_given_up", "connections given up for IP options, fragments or an unclear start; uncompressed") \
  X(Ended, "stream_ended", "connections forgotten at their end")                                                  \
  X(Idle, "stream_idle", "connections forgotten for silence")                                                     \
  X(IdleRecords, "stream_idle_records", "compressed segments forgotten with them: nobody acknowledged them")      \
  X(Remembered, "stream_remembered", "compressed segments kept until they were acknowledged")                     \
  X(NoMemory, "stream_no_memory", "segments sent uncompressed, as there was no memory to keep them")              \
  X(SentAgain, "stream_sent_again", "retransmissions sent as the same compressed segments")                       \
  X(Overwritten, "stream_overwritten", "retransmissions with other boundaries, sent with restored values")        \
  X(BadAck, "stream_bad_ack", "acknowledgements of what was never sent")                                          \
  X(Unreadable, "stream_unreadable", "kept segments that could not be restored; never, or this is a bug")
#define GRADLANE_STREAM_GAUGES(X)                                                                                 \
  X(Tracked, "stream_tracked", "TCP connections followed now")                                                    \
  X(Most, "stream_most", "TCP connections that could be")                                                         \
  X(Records, "stream_records", "compressed segments kept now")                                                    \
  X(RecordMemory, "stream_record_bytes", "memory that they take")                                                  \
  X(MostRecordMemory, "stream_record_bytes_most", "memory that they may take")
// clang-format on

enum class StreamFigure : uint8_t {
#define GRADLANE_STREAM_ENUM(symbol, name, help) k##symbol,
  GRADLANE_STREAM_COUNTERS(GRADLANE_STREAM_ENUM) GRADLANE_STREAM_GAUGES(GRADLANE_STREAM_ENUM)
#undef GRADLANE_STREAM_ENUM
      kCount
};

struct Segment {
  FlowKey key;
  uint32_t seq = 0, ack = 0;
  uint8_t flags = 0;
  size_t bytes = 0;   // of payload
  bool plain = true;  // false: IP options, a fragment, or TCP options with which no byte may be changed
};

// Every byte of a stream has one value on the wire, however often and in whatever pieces it is sent. So whatever a
// receiver keeps of each transmission, no float mixes exact and lossy bytes.
//
// - Byte n of a stream has the sequence number base + n, with base = ISN + 1, so the SYN must be seen. Floats start at
//   the bytes whose n is a multiple of 4.
// - `sent_end` is behind the highest byte ever seen. A segment at or behind it is *fresh*: no byte of it was ever sent.
//   Only floats that lie wholly within one fresh segment are sent lossy; that is when their value is decided. What is
//   missing in front of a fresh segment was lost inside the host: it counts as sent, exact.
// - A fresh segment that is compressed is remembered, as a record, until a cumulative acknowledgement covers all of it:
//   from then on receivers throw away every copy. (SACK does not count: a receiver may go back on it.)
// - Any other segment with data is a retransmission, if only in its first byte. It is sent as the record of exactly the
//   same bytes, or exact, with the values that records have for any of its bytes put in place. Where no record is,
//   everything was sent exact.
// - A stream without records can be forgotten at any time: what is under way is exact and stays exact, and nothing
//   is compressed any more. So the table may evict such streams, and only such.
class TcpStreams {
 public:
  static constexpr uint32_t kNone = StreamTable::kNone;

  struct Setup {
    size_t streams = 65536;
    size_t memory = size_t{64} << 20;  // for records
    uint64_t seed = 0;                 // random, or others can choose which streams meet in a bucket
    // Of silence, until a stream is forgotten. A host that does not get through may wait minutes between two
    // retransmissions; then the records must still be there.
    Nanos idle = 600 * kSecond;
    Nanos closing = 10 * kSecond;  // after a RST from the peer
  };
  // Allocates everything.
  TcpStreams(const Codec& codec, const Setup& setup);

  enum class Treatment : uint8_t { kUntouched, kFresh, kSentBefore };
  // Of one segment, until the next one comes.
  struct Decision {
    Treatment treatment = Treatment::kUntouched;
    unsigned lead = 0;  // kFresh: bytes in front of the first float
    uint32_t stream = kNone;
  };

  // Every TCP segment from host to wire, whatever its ToS, in order.
  // kUntouched: an unknown stream, or nothing to do: send it as it is.
  // kFresh: the floats from `lead` on may be compressed, if remember() takes the record before it is sent.
  // kSentBefore: send what again() gives, or else what overwrite() leaves, which is all of it if it was sent exact.
  [[nodiscard]] Decision from_host(const Segment& segment, Nanos now) noexcept;
  // Of a kFresh segment. False: there is no memory; send it as it is.
  [[nodiscard]] bool remember(const Decision& decision, const Segment& segment,
                              std::span<const uint8_t> record) noexcept;
  // The record of exactly these bytes, into `out`; its length, or 0: there is none, the stream was given up, or the
  // segment has flags with which it must not be compressed.
  [[nodiscard]] size_t again(const Decision& decision, const Segment& segment, std::span<uint8_t> out) noexcept;
  // Of a kSentBefore segment: nothing compressed was acknowledged for 3 s, all of them later than `since`.
  [[nodiscard]] bool stuck(const Decision& decision, Nanos since, Nanos now) const noexcept;
  // From now on nothing of the stream is sent compressed; records keep their values.
  void give_up(const Decision& decision) noexcept;
  // Puts the values of records in place wherever they cover `payload`, the segment's. True: some did, and the checksum
  // has to be computed again.
  [[nodiscard]] bool overwrite(const Decision& decision, const Segment& segment, std::span<uint8_t> payload) noexcept;

  // TCP segments from wire to host with ACK or RST, `key` as it arrived, once their checksum is known to be right.
  void from_wire(const Segment& segment, Nanos now) noexcept;
  // Without records, from_wire() has nothing to learn of acknowledgements: only RST matters.
  [[nodiscard]] bool any_records() const noexcept { return records_.records() != 0; }

  // Forgets what was silent for too long, in a small part of the table; to be called some 100 times a second.
  void sweep(Nanos now) noexcept;

  [[nodiscard]] size_t streams() const noexcept { return table_.size(); }
  [[nodiscard]] size_t records() const noexcept { return records_.records(); }
  [[nodiscard]] size_t record_bytes() const noexcept { return records_.memory_used(); }

  // Counters and gauges, with their names for telemetry.
  static constexpr size_t kFigures = static_cast<size_t>(StreamFigure::kCount);
  [[nodiscard]] uint64_t figure(StreamFigure figure) const noexcept;
  [[nodiscard]] uint64_t figure(size_t i) const noexcept { return figure(static_cast<StreamFigure>(i)); }
  [[nodiscard]] static const char* figure_name(size_t i) noexcept;
  [[nodiscard]] static const char* figure_help(size_t i) noexcept;

 private:
  void count(StreamFigure counter, uint64_t n = 1) noexcept { counters_[static_cast<size_t>(counter)] += n; }
  [[nodiscard]] uint32_t from_syn(const Segment& segment) noexcept;
  [[nodiscard]] bool goes_on(Stream& stream, const Segment& segment) noexcept;
  [[nodiscard]] Decision decide(uint32_t index, const Segment& segment) noexcept;
  void forget(uint32_t index, StreamFigure why) noexcept;

  const Codec codec_;
  const Nanos idle_, closing_;
  StreamTable table_;
  SentRecords records_;
  std::vector<uint8_t> record_, payload_;      // overwrite() restores here
  size_t swept_ = 0;                           // bucket
  std::array<uint64_t, kFigures> counters_{};  // gauges stay 0
};

}  // namespace gradlane::accel
