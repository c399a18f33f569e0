// sent_records_test.cc - the arena of records: records stay unchanged, chunks are used again, no memory is lost
#include "dataplane/accelerator/engine/sent_records.h"

#include <gtest/gtest.h>

#include <deque>
#include <numeric>
#include <vector>

#include "tests/compress/test_floats.h"

namespace gradlane::accel::test {
namespace {

using gradlane::test::Rng;
using List = SentRecords::List;

std::vector<uint8_t> bytes_of(size_t count, Rng& random) {
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.bits());
  return bytes;
}

std::vector<uint8_t> copy_of(const SentRecords& records, uint32_t record) {
  std::vector<uint8_t> bytes(SentRecords::kMostBytes);
  bytes.resize(records.copy(record, bytes));
  return bytes;
}

TEST(SentRecords, OrderOfSequenceNumbersIsModulo) {
  EXPECT_TRUE(seq_before(1, 2));
  EXPECT_FALSE(seq_before(2, 2));
  EXPECT_FALSE(seq_before(3, 2));
  EXPECT_TRUE(seq_before(0xfffffff0, 5));
  EXPECT_FALSE(seq_before(5, 0xfffffff0));
}

TEST(SentRecords, KeepsBytesOfAnyLength) {
  SentRecords records(1 << 20);
  Rng random(1);
  for (const size_t bytes : std::vector<size_t>{1, 239, 240, 241, 480, 481, 1448, 9000, 65535}) {
    List list;
    const auto record = bytes_of(bytes, random);
    ASSERT_TRUE(records.append(list, 100, bytes, record));
    const uint32_t found = records.find(list, 100);
    ASSERT_NE(found, SentRecords::kNone);
    EXPECT_EQ(copy_of(records, found), record);
    EXPECT_EQ(records.payload_bytes(found), bytes);
    EXPECT_EQ(records.end(found), 100 + bytes);
    std::vector<uint8_t> small(bytes - 1);
    EXPECT_EQ(records.copy(found, small), 0u);
    EXPECT_EQ(records.memory_used(), (bytes + 239) / 240 * 256);
    EXPECT_EQ(records.clear(list), 1u);
    EXPECT_EQ(records.memory_used(), 0u);
  }
}

TEST(SentRecords, RefusesWhatCannotBe) {
  SentRecords records(1 << 20);
  List list;
  const std::vector<uint8_t> large(65536);
  EXPECT_FALSE(records.append(list, 0, 10, {}));
  EXPECT_FALSE(records.append(list, 0, 10, large));
  EXPECT_FALSE(records.append(list, 0, 65536, std::span(large).first(10)));
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(records.records(), 0u);
  SentRecords nothing(255);
  EXPECT_FALSE(nothing.append(list, 0, 10, std::span(large).first(10)));
}

TEST(SentRecords, FullMemoryChangesNothingAndComesBack) {
  Rng random(2);
  SentRecords records(10 * 256);
  List list;
  const auto record = bytes_of(500, random);  // three chunks
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(records.append(list, i * 1000, 1000, record));
  EXPECT_FALSE(records.append(list, 3000, 1000, record));
  EXPECT_EQ(records.memory_used(), 9u * 256);
  EXPECT_TRUE(records.append(list, 3000, 100, std::span(record).first(240)));
  EXPECT_EQ(records.memory_used(), records.memory());
  EXPECT_EQ(records.release(list, 1000), 1u);
  EXPECT_TRUE(records.append(list, 3100, 1000, record));
  EXPECT_EQ(records.records(), 4u);
  for (uint32_t record_number = records.find(list, 1000); record_number != SentRecords::kNone;
       record_number = records.next(record_number)) {
    const auto bytes = copy_of(records, record_number);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), record.begin()));
  }
}

TEST(SentRecords, AcknowledgedInPartStays) {
  Rng random(3);
  SentRecords records(1 << 16);
  List list;
  const auto record = bytes_of(20, random);
  ASSERT_TRUE(records.append(list, 0xffffffe0, 64, record));  // ends at 0x20
  ASSERT_TRUE(records.append(list, 0x20, 64, record));
  EXPECT_EQ(records.release(list, 0xffffffe0), 0u);
  EXPECT_EQ(records.release(list, 0x1f), 0u);
  EXPECT_EQ(records.release(list, 0xffffff00), 0u);  // an old acknowledgement
  EXPECT_EQ(records.release(list, 0x20), 1u);
  EXPECT_EQ(records.seq(records.find(list, 0)), 0x20u);
  EXPECT_EQ(records.release(list, 0x1000), 1u);
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(records.find(list, 0x20), SentRecords::kNone);
}

// The model has several lists that share the memory, gaps between records, and sequence numbers that wrap around.
struct KeptRecord {
  uint32_t seq;
  size_t bytes;
  std::vector<uint8_t> record;
};
struct Modelled {
  List list;
  std::deque<KeptRecord> kept;
  uint32_t end = 0xfffff000;
};

void expect_same_find(const SentRecords& records, Modelled& stream, uint32_t seq) {
  size_t i = 0;
  while (i < stream.kept.size() && !seq_before(seq, stream.kept[i].seq + static_cast<uint32_t>(stream.kept[i].bytes))) {
    ++i;
  }
  uint32_t record = records.find(stream.list, seq);
  for (; i < stream.kept.size(); ++i, record = records.next(record)) {
    ASSERT_NE(record, SentRecords::kNone);
    ASSERT_EQ(records.seq(record), stream.kept[i].seq);
    ASSERT_EQ(records.payload_bytes(record), stream.kept[i].bytes);
    ASSERT_EQ(copy_of(records, record), stream.kept[i].record);
  }
  ASSERT_EQ(record, SentRecords::kNone);
}

TEST(SentRecords, SameAsAModel) {
  Rng random(4);
  SentRecords records(40 * 256);
  std::vector<Modelled> streams(4);
  size_t refused = 0;
  for (size_t step = 0; step < 20'000; ++step) {
    Modelled& stream = streams[random.below(streams.size())];
    const uint32_t first = stream.kept.empty() ? stream.end : stream.kept.front().seq;
    const auto somewhere = first + static_cast<uint32_t>(random.below(stream.end - first + 1));
    if (random.one_in(2)) {
      const uint32_t seq = stream.end + static_cast<uint32_t>(random.one_in(4) ? random.below(50) : 0);
      const size_t bytes = 1 + random.below(1500);
      auto record = bytes_of(1 + random.below(1000), random);
      if (records.append(stream.list, seq, bytes, record)) {
        stream.kept.push_back({seq, bytes, std::move(record)});
        stream.end = seq + static_cast<uint32_t>(bytes);
      } else {
        ++refused;
      }
    } else if (random.one_in(2)) {
      size_t released = 0;
      while (!stream.kept.empty() &&
             !seq_before(somewhere, stream.kept.front().seq + static_cast<uint32_t>(stream.kept.front().bytes))) {
        stream.kept.pop_front();
        ++released;
      }
      ASSERT_EQ(records.release(stream.list, somewhere), released);
    } else if (random.one_in(100)) {
      ASSERT_EQ(records.clear(stream.list), stream.kept.size());
      stream.kept.clear();
    } else {
      ASSERT_NO_FATAL_FAILURE(expect_same_find(records, stream, somewhere)) << step;
    }
    ASSERT_EQ(stream.list.empty(), stream.kept.empty());
    const size_t all = std::accumulate(streams.begin(), streams.end(), size_t{0},
                                       [](size_t sum, const Modelled& it) { return sum + it.kept.size(); });
    ASSERT_EQ(records.records(), all);
  }
  EXPECT_GT(refused, 100u);
  for (Modelled& stream : streams) records.clear(stream.list);
  EXPECT_EQ(records.memory_used(), 0u);
}

}  // namespace
}  // namespace gradlane::accel::test
