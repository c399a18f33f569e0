// stream_table.h - a table of the TCP connections that are followed, of bounded size (worker thread only; no DPDK)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/time.h"
#include "dataplane/accelerator/engine/packet_view.h"
#include "dataplane/accelerator/engine/sent_records.h"

namespace gradlane::accel {

// The direction from host to wire of one connection. It fills one cache line.
struct alignas(64) Stream {
  FlowKey key{};          // source: the host
  uint32_t base = 0;      // sequence number of the first data byte
  uint32_t sent_end = 0;  // sequence number after the highest one ever sent
  uint32_t host_ack = 0;  // last acknowledgement number that the host sent
  SentRecords::List records{};
  Nanos last_seen = 0;
  Nanos progressed_at = 0;  // time at which records were acknowledged last, or the first of them was sent
  bool confirmed = false;   // the host's first segment after the SYN continued from `base`
  bool exact_only = false;  // nothing new is compressed; the stream is forgotten as soon as it has no records
  bool open_end = false;    // a segment was not plain, so bytes after sent_end may have been sent
  bool raw_only = false;    // retransmissions are not compressed either
  bool reset = false;       // the peer sent a RST, and the host has sent nothing since
};
static_assert(sizeof(Stream) == 64);

// A set-associative hash table. A stream can be in one bucket only, in any of its kWays slots. A lookup reads the
// bucket's line of tags, and compares the whole key only with streams whose tag matches. The hash has a seed, so that
// nobody can choose ports that all fall into one bucket.
class StreamTable {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr size_t kWays = 8;

  // `streams` is rounded up to a multiple of kWays.
  StreamTable(size_t streams, uint64_t seed);

  [[nodiscard]] uint32_t find(const FlowKey& key) const noexcept;
  struct Inserted {
    uint32_t index = kNone;
    bool evicted = false;
  };
  // Inserts a new Stream with this key, which must not be in the table yet. If its bucket is full, it replaces the
  // least recently used stream that has no records. If all streams of the bucket have records, the index is kNone.
  [[nodiscard]] Inserted insert(const FlowKey& key) noexcept;
  // Removes a stream. Its records must have been cleared.
  void erase(uint32_t index) noexcept;

  [[nodiscard]] Stream& operator[](uint32_t index) noexcept { return streams_[index]; }
  [[nodiscard]] const Stream& operator[](uint32_t index) const noexcept { return streams_[index]; }
  [[nodiscard]] bool used(uint32_t index) const noexcept { return tags_[index / kWays].of[index % kWays] != 0; }
  [[nodiscard]] size_t size() const noexcept { return size_; }
  [[nodiscard]] size_t buckets() const noexcept { return buckets_; }
  [[nodiscard]] size_t capacity() const noexcept { return buckets_ * kWays; }

 private:
  struct Place {
    size_t bucket;
    uint32_t tag;  // never 0, because 0 marks a free slot
  };
  [[nodiscard]] Place place_of(const FlowKey& key) const noexcept;

  struct alignas(32) Tags {  // half a cache line
    uint32_t of[kWays] = {};
  };

  const size_t buckets_;
  const uint64_t seed_;
  std::unique_ptr<Tags[]> tags_;
  std::unique_ptr<Stream[]> streams_;
  size_t size_ = 0;
};

}  // namespace gradlane::accel
