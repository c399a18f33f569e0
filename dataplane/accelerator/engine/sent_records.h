// sent_records.h - segments that were sent compressed and are not acknowledged yet, in one arena (worker thread only;
// no DPDK)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace gradlane::accel {

// Returns whether sequence number a is before b. TCP sequence numbers are modulo 2^32: a is before b if the distance
// from a up to b is less than 2^31.
[[nodiscard]] constexpr bool seq_before(uint32_t a, uint32_t b) noexcept { return static_cast<int32_t>(a - b) < 0; }

// The records of all streams. A *record* is a range of a stream's sequence numbers, and the opaque bytes that were sent
// in its place. It is stored in chunks of fixed size that are linked by number. The free chunks are linked by number
// too. The constructor allocates everything. Memory that was never needed is never touched.
class SentRecords {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr size_t kMostBytes = 65535;  // limit of a record's payload, and of its bytes

  // The records of one stream, in sequence order, without overlap. The stream contains the list. Zeroed memory is not
  // an empty list.
  class List {
   public:
    [[nodiscard]] bool empty() const noexcept { return first_ == kNone; }

   private:
    friend class SentRecords;
    uint32_t first_ = kNone, last_ = kNone;
    // record that the previous find() returned; the search starts there, because retransmissions come in order
    uint32_t found_ = kNone;
  };

  explicit SentRecords(size_t memory);

  // Adds a record after all others of the list. `seq` must not be before the end of the last record. Returns false and
  // changes nothing if there is no memory.
  [[nodiscard]] bool append(List& list, uint32_t seq, size_t payload_bytes, std::span<const uint8_t> record) noexcept;
  // Frees the records that end at or before `ack`. Returns their number.
  size_t release(List& list, uint32_t ack) noexcept;
  size_t clear(List& list) noexcept;

  // Returns the first record that ends after `seq`, or kNone. The record covers `seq` or begins after it.
  [[nodiscard]] uint32_t find(List& list, uint32_t seq) const noexcept;
  [[nodiscard]] uint32_t next(uint32_t record) const noexcept { return chunks_[record].next_record; }
  [[nodiscard]] uint32_t seq(uint32_t record) const noexcept { return chunks_[record].seq; }
  [[nodiscard]] size_t payload_bytes(uint32_t record) const noexcept { return chunks_[record].payload_bytes; }
  [[nodiscard]] uint32_t end(uint32_t record) const noexcept {
    return chunks_[record].seq + chunks_[record].payload_bytes;
  }
  // Copies the bytes of a record into `out`. Returns their number, or 0 if `out` has no room for them.
  [[nodiscard]] size_t copy(uint32_t record, std::span<uint8_t> out) const noexcept;

  [[nodiscard]] size_t records() const noexcept { return records_; }
  // memory_used() returns the bytes of memory that records take now, and memory() the bytes that they may take.
  [[nodiscard]] size_t memory_used() const noexcept { return used_ * sizeof(Chunk); }
  [[nodiscard]] size_t memory() const noexcept { return chunk_count_ * sizeof(Chunk); }

 private:
  // The first chunk of a record holds the record's fields. Its number is the number of the record.
  struct alignas(64) Chunk {
    uint32_t next_chunk;   // next chunk of the record, or next free chunk
    uint32_t next_record;  // next record of the stream
    uint32_t seq;
    uint16_t payload_bytes;
    uint16_t record_bytes;
    uint8_t data[240];
  };
  static_assert(sizeof(Chunk) == 256);

  [[nodiscard]] uint32_t take_chunk() noexcept;
  void free_chunks(uint32_t first) noexcept;

  size_t chunk_count_;
  std::unique_ptr<Chunk[]> chunks_;
  uint32_t free_ = kNone;  // first chunk that was used before and is free again
  size_t touched_ = 0;     // chunks from this number on were never used
  size_t used_ = 0;
  size_t records_ = 0;
};

}  // namespace gradlane::accel
