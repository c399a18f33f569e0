// sent_records.cc - segments that were sent compressed and are not acknowledged yet, in one arena (worker thread only;
// no DPDK)
#include "dataplane/accelerator/engine/sent_records.h"

#include <algorithm>
#include <cstring>

namespace gradlane::accel {

SentRecords::SentRecords(size_t memory)
    : chunk_count_(std::min(memory / sizeof(Chunk), size_t{kNone})),
      chunks_(std::make_unique_for_overwrite<Chunk[]>(chunk_count_)) {}

uint32_t SentRecords::take_chunk() noexcept {
  ++used_;
  if (free_ == kNone) return static_cast<uint32_t>(touched_++);
  const uint32_t chunk = free_;
  free_ = chunks_[chunk].next_chunk;
  return chunk;
}

void SentRecords::free_chunks(uint32_t first) noexcept {
  while (first != kNone) {
    const uint32_t next = chunks_[first].next_chunk;
    chunks_[first].next_chunk = free_;
    free_ = first;
    --used_;
    first = next;
  }
}

bool SentRecords::append(List& list, uint32_t seq, size_t payload_bytes, std::span<const uint8_t> record) noexcept {
  constexpr size_t kRoom = sizeof(Chunk::data);
  const size_t chunks = (record.size() + kRoom - 1) / kRoom;
  if (chunks == 0 || chunks > chunk_count_ - used_ || payload_bytes > kMostBytes || record.size() > kMostBytes) {
    return false;
  }
  const uint32_t first = take_chunk();
  uint32_t chunk = first;
  for (std::span<const uint8_t> rest = record;;) {
    const size_t bytes = std::min(rest.size(), kRoom);
    std::memcpy(chunks_[chunk].data, rest.data(), bytes);
    rest = rest.subspan(bytes);
    if (rest.empty()) break;
    const uint32_t next = take_chunk();
    chunks_[chunk].next_chunk = next;
    chunk = next;
  }
  chunks_[chunk].next_chunk = kNone;
  Chunk& head = chunks_[first];
  head.next_record = kNone;
  head.seq = seq;
  head.payload_bytes = static_cast<uint16_t>(payload_bytes);
  head.record_bytes = static_cast<uint16_t>(record.size());
  (list.first_ == kNone ? list.first_ : chunks_[list.last_].next_record) = first;
  list.last_ = first;
  ++records_;
  return true;
}

size_t SentRecords::release(List& list, uint32_t ack) noexcept {
  size_t released = 0;
  while (list.first_ != kNone && !seq_before(ack, end(list.first_))) {
    const uint32_t record = list.first_;
    list.first_ = chunks_[record].next_record;
    if (list.found_ == record) list.found_ = kNone;
    free_chunks(record);
    ++released;
  }
  if (list.first_ == kNone) list.last_ = kNone;
  records_ -= released;
  return released;
}

size_t SentRecords::clear(List& list) noexcept { return list.empty() ? 0 : release(list, end(list.last_)); }

uint32_t SentRecords::find(List& list, uint32_t seq) const noexcept {
  if (list.first_ == kNone || !seq_before(seq, end(list.last_))) return kNone;
  uint32_t record = list.found_ != kNone && !seq_before(seq, chunks_[list.found_].seq) ? list.found_ : list.first_;
  while (!seq_before(seq, end(record))) record = chunks_[record].next_record;
  list.found_ = record;
  return record;
}

size_t SentRecords::copy(uint32_t record, std::span<uint8_t> out) const noexcept {
  const size_t bytes = chunks_[record].record_bytes;
  if (bytes > out.size()) return 0;
  uint32_t chunk = record;
  for (size_t done = 0; done < bytes; done += sizeof(Chunk::data), chunk = chunks_[chunk].next_chunk) {
    std::memcpy(out.data() + done, chunks_[chunk].data, std::min(bytes - done, sizeof(Chunk::data)));
  }
  return bytes;
}

}  // namespace gradlane::accel
