// tcp_streams.cc - decides which bytes of TCP streams may be compressed, and keeps compressed segments for
// retransmissions (worker thread only; no DPDK)
#include "dataplane/accelerator/engine/tcp_streams.h"

#include <algorithm>
#include <cstring>

#include "dataplane/accelerator/engine/record.h"

namespace gradlane::accel {
namespace {

// The largest TCP window (RFC 7323). A segment that begins further after sent_end does not belong to the stream.
constexpr uint32_t kMostWindow = uint32_t{1} << 30;
// A RST counts only if its sequence number is less than this after the host's acknowledgement. There a host acts on it,
// or replies that the connection is alive (RFC 5961).
constexpr uint32_t kResetWindow = uint32_t{1} << 20;
// Length of the longest IP packet. It is assumed for first fragments, which do not say how long their packet is.
constexpr uint32_t kMostPacket = 65536;
constexpr Nanos kStuck = 3 * kSecond;
constexpr size_t kMostSwept = 32;  // limit of buckets that one sweep() checks
// number of sweep() calls that check the whole table, unless kMostSwept makes them more
constexpr size_t kSweepCalls = 512;

// Returns the sequence number of the first data byte. A SYN has a sequence number of its own, before the data.
uint32_t first_byte(const Segment& segment) noexcept { return segment.seq + ((segment.flags & kSyn) != 0 ? 1 : 0); }

}  // namespace

TcpStreams::TcpStreams(const Codec& codec, const Setup& setup)
    : codec_(codec),
      idle_(setup.idle),
      closing_(setup.closing),
      table_(setup.streams, setup.seed),
      records_(setup.memory),
      record_(SentRecords::kMostBytes),
      payload_(SentRecords::kMostBytes) {}

void TcpStreams::forget(uint32_t index, StreamFigure why) noexcept {
  const size_t records = records_.clear(table_[index].records);
  if (why == StreamFigure::kIdle) count(StreamFigure::kIdleRecords, records);
  table_.erase(index);
  count(why);
}

TcpStreams::Decision TcpStreams::from_host(const Segment& segment, Nanos now) noexcept {
  const bool starts = (segment.flags & (kSyn | kRst)) == kSyn;
  const uint32_t index = starts ? from_syn(segment) : table_.find(segment.key);
  if (index == kNone) return {};
  if ((segment.flags & kRst) != 0) {
    forget(index, StreamFigure::kEnded);
    return {};
  }
  Stream& stream = table_[index];
  stream.last_seen = now;
  stream.reset = false;
  if ((segment.flags & kAck) != 0) stream.host_ack = segment.ack;
  if (!starts && !goes_on(stream, segment)) stream.exact_only = true;
  if (!segment.plain) stream.exact_only = stream.open_end = true;
  const Decision decision = decide(index, segment);
  if (stream.exact_only && stream.records.empty()) {
    forget(index, (segment.flags & kFin) != 0 ? StreamFigure::kEnded : StreamFigure::kGiven);
  }
  return decision;
}

// Returns the stream that a SYN starts. If the SYN is a retransmission, returns the stream that it started before.
uint32_t TcpStreams::from_syn(const Segment& segment) noexcept {
  const uint32_t base = first_byte(segment);
  const uint32_t index = table_.find(segment.key);
  if (index != kNone) {
    if (table_[index].base == base) return index;
    forget(index, StreamFigure::kEnded);
  }
  if (!segment.plain) return kNone;
  const StreamTable::Inserted inserted = table_.insert(segment.key);
  if (inserted.index == kNone) {
    count(StreamFigure::kNotTracked);
    return kNone;
  }
  if (inserted.evicted) count(StreamFigure::kEvicted);
  count(StreamFigure::kBegun);
  Stream& stream = table_[inserted.index];
  stream.base = base;
  stream.sent_end = base;
  return inserted.index;
}

// Returns whether a segment that is no SYN fits what was sent before. The first such segment shows whether the SYN was
// that of the actual connection. A host that answers with SYN cookies may have sent several SYNs with different
// numbers.
bool TcpStreams::goes_on(Stream& stream, const Segment& segment) noexcept {
  if (stream.confirmed) return !seq_before(stream.sent_end + kMostWindow, segment.seq);
  stream.confirmed = segment.seq - stream.base <= stream.sent_end - stream.base;
  return stream.confirmed;
}

TcpStreams::Decision TcpStreams::decide(uint32_t index, const Segment& segment) noexcept {
  Stream& stream = table_[index];
  const uint32_t begin = first_byte(segment);
  const bool fin = (segment.flags & kFin) != 0;
  const uint32_t end = begin + static_cast<uint32_t>(segment.bytes) + (fin ? 1 : 0);
  const bool fresh = !seq_before(begin, stream.sent_end);
  if (seq_before(stream.sent_end, end) && !seq_before(stream.sent_end + kMostWindow, begin)) stream.sent_end = end;
  // No data follows a FIN.
  if (fin) stream.exact_only = true;
  if (segment.bytes == 0) return {};
  const bool over = stream.exact_only && stream.records.empty();  // the stream is about to be forgotten
  if (!fresh) return over ? Decision{} : Decision{Treatment::kSentBefore, 0, index};
  if (stream.exact_only || (segment.flags & kNeverCompressed) != 0) return {};
  const unsigned lead = (stream.base - begin) % sizeof(float);
  if (segment.bytes < lead + sizeof(float)) return {};
  return {Treatment::kFresh, lead, index};
}

bool TcpStreams::remember(const Decision& decision, const Segment& segment, std::span<const uint8_t> record) noexcept {
  if (decision.treatment != Treatment::kFresh) return false;
  Stream& stream = table_[decision.stream];
  if (stream.records.empty()) stream.progressed_at = stream.last_seen;
  const bool kept = records_.append(stream.records, segment.seq, segment.bytes, record);
  count(kept ? StreamFigure::kRemembered : StreamFigure::kNoMemory);
  return kept;
}

bool TcpStreams::stuck(const Decision& decision, Nanos since, Nanos now) const noexcept {
  if (decision.treatment != Treatment::kSentBefore) return false;
  const Stream& stream = table_[decision.stream];
  return !stream.records.empty() && !stream.raw_only && now - std::max(stream.progressed_at, since) > kStuck;
}

void TcpStreams::give_up(const Decision& decision) noexcept {
  table_[decision.stream].exact_only = table_[decision.stream].raw_only = true;
}

size_t TcpStreams::again(const Decision& decision, const Segment& segment, std::span<uint8_t> out) noexcept {
  if (decision.treatment != Treatment::kSentBefore || (segment.flags & kNeverCompressed) != 0 || !segment.plain ||
      table_[decision.stream].raw_only) {
    return 0;
  }
  const uint32_t record = records_.find(table_[decision.stream].records, segment.seq);
  if (record == kNone || records_.seq(record) != segment.seq || records_.payload_bytes(record) != segment.bytes) {
    return 0;
  }
  const size_t bytes = records_.copy(record, out);
  if (bytes != 0) count(StreamFigure::kSentAgain);
  return bytes;
}

bool TcpStreams::overwrite(const Decision& decision, const Segment& segment, std::span<uint8_t> payload) noexcept {
  if (decision.treatment != Treatment::kSentBefore || payload.empty()) return false;
  const uint32_t begin = first_byte(segment);
  bool any = false;
  for (uint32_t record = records_.find(table_[decision.stream].records, begin); record != kNone;
       record = records_.next(record)) {
    // The distance is signed: a record may begin before the segment, and end within or after it.
    const auto from = static_cast<int32_t>(records_.seq(record) - begin);
    if (from >= static_cast<int64_t>(payload.size())) break;
    const size_t bytes = records_.payload_bytes(record);
    const size_t encoded = records_.copy(record, record_);
    if (read_record(codec_, {record_.data(), encoded}, {payload_.data(), bytes}) != RecordFault::kNone) {
      count(StreamFigure::kUnreadable);
      continue;
    }
    const size_t skip = from < 0 ? static_cast<size_t>(-from) : 0;
    const size_t to = from < 0 ? 0 : static_cast<size_t>(from);
    std::memcpy(payload.data() + to, payload_.data() + skip, std::min(bytes - skip, payload.size() - to));
    any = true;
  }
  if (any) count(StreamFigure::kOverwritten);
  return any;
}

void TcpStreams::from_wire(const Segment& segment, Nanos now) noexcept {
  const uint32_t index = table_.find(segment.key.reversed());
  if (index == kNone) return;
  Stream& stream = table_[index];
  if ((segment.flags & kRst) != 0) {
    // Anybody can send a RST. If there are records, a false RST could do harm. So only a RST counts to which the host
    // reacts.
    if (!stream.records.empty() && segment.seq - stream.host_ack >= kResetWindow) return;
    stream.reset = true;
    stream.last_seen = now;
    return;
  }
  stream.last_seen = now;
  if ((segment.flags & kAck) == 0 || stream.records.empty()) return;
  if (seq_before(stream.sent_end + (stream.open_end ? kMostPacket : 0), segment.ack)) {
    count(StreamFigure::kBadAck);
    return;
  }
  if (records_.release(stream.records, segment.ack) != 0) stream.progressed_at = now;
  if (stream.exact_only && stream.records.empty()) forget(index, StreamFigure::kEnded);
}

void TcpStreams::sweep(Nanos now) noexcept {
  const size_t buckets = std::clamp(table_.buckets() / kSweepCalls, size_t{1}, kMostSwept);
  for (size_t i = 0; i < buckets; ++i) {
    for (size_t way = 0; way < StreamTable::kWays; ++way) {
      const auto index = static_cast<uint32_t>(swept_ * StreamTable::kWays + way);
      if (!table_.used(index)) continue;
      const Stream& stream = table_[index];
      if (now - stream.last_seen > (stream.reset ? closing_ : idle_)) forget(index, StreamFigure::kIdle);
    }
    if (++swept_ == table_.buckets()) swept_ = 0;
  }
}

CounterSet<StreamFigure> TcpStreams::figures() const noexcept {
  CounterSet<StreamFigure> figures = counters_;
  figures.set(StreamFigure::kTracked, table_.size());
  figures.set(StreamFigure::kMost, table_.capacity());
  figures.set(StreamFigure::kRecords, records_.records());
  figures.set(StreamFigure::kRecordMemory, records_.memory_used());
  figures.set(StreamFigure::kMostRecordMemory, records_.memory());
  return figures;
}

}  // namespace gradlane::accel
