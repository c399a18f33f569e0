// sent_records.h - what was sent compressed and is not acknowledged yet, in one arena (worker thread only; no DPDK)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace gradlane::accel {

// TCP sequence numbers are modulo 2^32: a is in front of b if the way from a to b is the shorter one.
[[nodiscard]] constexpr bool seq_before(uint32_t a, uint32_t b) noexcept { return static_cast<int32_t>(a - b) < 0; }

// Records of all streams. A *record* is a range of a stream's sequence numbers and the opaque bytes that it was sent
// as. It lies in chunks of fixed size, linked by number; free chunks are linked likewise. Everything is allocated by
// the constructor; memory that was never needed is never touched.
class SentRecords {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr size_t kMostBytes = 65535;  // of a record's payload, and of its bytes

  // The records of one stream, in sequence order, without overlap. Part of the stream; all zeros are not empty.
  class List {
   public:
    [[nodiscard]] bool empty() const noexcept { return first_ == kNone; }

   private:
    friend class SentRecords;
    uint32_t first_ = kNone, last_ = kNone;
    uint32_t found_ = kNone;  // by the last find(): retransmissions come in order
  };

  explicit SentRecords(size_t memory);

  // Behind all others of the list: `seq` is not in front of the last one's end. False: there is no memory, and nothing
  // has changed.
  [[nodiscard]] bool append(List& list, uint32_t seq, size_t payload_bytes, std::span<const uint8_t> record) noexcept;
  // Frees the records that end at or in front of `ack`; how many.
  size_t release(List& list, uint32_t ack) noexcept;
  size_t clear(List& list) noexcept;

  // The first record that ends behind `seq`, or kNone; it covers `seq` or begins behind it.
  [[nodiscard]] uint32_t find(List& list, uint32_t seq) const noexcept;
  [[nodiscard]] uint32_t next(uint32_t record) const noexcept { return chunks_[record].next_record; }
  [[nodiscard]] uint32_t seq(uint32_t record) const noexcept { return chunks_[record].seq; }
  [[nodiscard]] size_t payload_bytes(uint32_t record) const noexcept { return chunks_[record].payload_bytes; }
  [[nodiscard]] uint32_t end(uint32_t record) const noexcept {
    return chunks_[record].seq + chunks_[record].payload_bytes;
  }
  // The bytes, into `out`; how many, or 0 if there is no room for them.
  [[nodiscard]] size_t copy(uint32_t record, std::span<uint8_t> out) const noexcept;

  [[nodiscard]] size_t records() const noexcept { return records_; }
  // Memory that records take, and that they may take.
  [[nodiscard]] size_t memory_used() const noexcept { return used_ * sizeof(Chunk); }
  [[nodiscard]] size_t memory() const noexcept { return chunk_count_ * sizeof(Chunk); }

 private:
  // A record's fields are those of its first chunk, whose number is the record's.
  struct alignas(64) Chunk {
    uint32_t next_chunk;   // of the record, or the next free one
    uint32_t next_record;  // of the stream
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
  uint32_t free_ = kNone;  // used before and free again
  size_t touched_ = 0;     // chunks from here on were never used
  size_t used_ = 0;
  size_t records_ = 0;
};

}  // namespace gradlane::accel
