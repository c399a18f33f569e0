// stream_table_test.cc - the bounded table of connections: finds them, replaces the oldest, never one with records
#include "dataplane/accelerator/engine/stream_table.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <vector>

#include "tests/compress/test_floats.h"

namespace gradlane::accel::test {
namespace {

using gradlane::test::Rng;

constexpr FlowKey key_of(uint16_t port) { return {0x0a4d0001, 0x0a4d0002, 5000, port, kTcpProtocol}; }

TEST(StreamTable, FindsWhatIsThere) {
  StreamTable table(64, 1);
  EXPECT_EQ(table.find(key_of(1)), StreamTable::kNone);
  const StreamTable::Inserted one = table.insert(key_of(1));
  ASSERT_NE(one.index, StreamTable::kNone);
  EXPECT_FALSE(one.evicted);
  EXPECT_EQ(table.find(key_of(1)), one.index);
  EXPECT_TRUE(table.used(one.index));
  EXPECT_EQ(table[one.index].key, key_of(1));
  EXPECT_EQ(table.size(), 1u);
  // Every part of the key counts.
  for (const FlowKey& other :
       {key_of(2), key_of(1).reversed(), FlowKey{0x0a4d0003, 0x0a4d0002, 5000, 1, kTcpProtocol},
        FlowKey{0x0a4d0001, 0x0a4d0003, 5000, 1, kTcpProtocol}, FlowKey{0x0a4d0001, 0x0a4d0002, 5001, 1, kTcpProtocol},
        FlowKey{0x0a4d0001, 0x0a4d0002, 5000, 1, kUdpProtocol}}) {
    EXPECT_EQ(table.find(other), StreamTable::kNone);
  }
  table.erase(one.index);
  EXPECT_EQ(table.find(key_of(1)), StreamTable::kNone);
  EXPECT_FALSE(table.used(one.index));
  EXPECT_EQ(table.size(), 0u);
}

TEST(StreamTable, ANewStreamRemembersNothingOfTheOldOne) {
  StreamTable table(8, 1);
  const uint32_t index = table.insert(key_of(1)).index;
  table[index].base = 5;
  table[index].exact_only = table[index].confirmed = table[index].reset = true;
  table[index].last_seen = 9;
  table.erase(index);
  const uint32_t again = table.insert(key_of(1)).index;
  EXPECT_EQ(table[again].base, 0u);
  EXPECT_FALSE(table[again].exact_only || table[again].confirmed || table[again].reset);
  EXPECT_EQ(table[again].last_seen, 0u);
  EXPECT_TRUE(table[again].records.empty());
}

TEST(StreamTable, SizesAreRoundedUp) {
  for (const auto& [streams, capacity] : std::map<size_t, size_t>{{0, 8}, {1, 8}, {8, 8}, {9, 16}, {1000, 1000}}) {
    EXPECT_EQ(StreamTable(streams, 1).capacity(), capacity);
  }
}

// A table of one bucket, which is full.
class FullBucket : public testing::Test {
 protected:
  FullBucket() {
    for (uint16_t port = 0; port < 8; ++port) {
      const StreamTable::Inserted inserted = table_.insert(key_of(port));
      EXPECT_FALSE(inserted.evicted);
      index_[port] = inserted.index;
      table_[inserted.index].last_seen = 100 + (port + 3u) % 8;  // port 5 is the oldest, then 6
    }
  }
  void remember(uint16_t port) {
    const uint8_t record[] = {1};
    EXPECT_TRUE(records_.append(table_[index_[port]].records, 0, 10, record));
  }

  StreamTable table_{8, 1};
  SentRecords records_{8192};
  std::array<uint32_t, 8> index_{};
};

TEST_F(FullBucket, ReplacesTheLeastRecentlyUsed) {
  const StreamTable::Inserted inserted = table_.insert(key_of(100));
  EXPECT_TRUE(inserted.evicted);
  EXPECT_EQ(inserted.index, index_[5]);
  EXPECT_EQ(table_.find(key_of(5)), StreamTable::kNone);
  EXPECT_EQ(table_.find(key_of(100)), inserted.index);
  EXPECT_EQ(table_.size(), 8u);
}

TEST_F(FullBucket, KeepsThoseWithRecords) {
  remember(5);
  remember(6);
  EXPECT_EQ(table_.insert(key_of(100)).index, index_[7]);
  EXPECT_EQ(table_.find(key_of(5)), index_[5]);
}

TEST_F(FullBucket, RefusesIfAllHaveRecords) {
  for (uint16_t port = 0; port < 8; ++port) remember(port);
  EXPECT_EQ(table_.insert(key_of(100)).index, StreamTable::kNone);
  EXPECT_EQ(table_.size(), 8u);
  for (uint16_t port = 0; port < 8; ++port) EXPECT_EQ(table_.find(key_of(port)), index_[port]);
  records_.release(table_[index_[3]].records, 10);
  EXPECT_EQ(table_.insert(key_of(100)).index, index_[3]);
}

TEST(StreamTable, SameAsAModel) {
  Rng random(7);
  StreamTable table(256, 7);
  std::map<uint16_t, uint32_t> model;
  size_t evicted = 0;
  for (size_t step = 0; step < 50'000; ++step) {
    const auto port = static_cast<uint16_t>(random.below(400));
    const auto known = model.find(port);
    ASSERT_EQ(table.find(key_of(port)), known == model.end() ? StreamTable::kNone : known->second);
    if (known == model.end()) {
      const StreamTable::Inserted inserted = table.insert(key_of(port));
      if (inserted.evicted) {
        ++evicted;
        std::erase_if(model, [&](const auto& it) { return it.second == inserted.index; });
      }
      model[port] = inserted.index;
      table[inserted.index].last_seen = step;
    } else if (random.one_in(2)) {
      table.erase(known->second);
      model.erase(known);
    }
    ASSERT_EQ(table.size(), model.size());
  }
  EXPECT_GT(evicted, 0u);
}

// Ports that follow each other spread over the buckets, differently for each seed.
TEST(StreamTable, SpreadsBySeed) {
  std::vector<std::vector<uint32_t>> places;
  for (const uint64_t seed : {uint64_t{1}, uint64_t{2}}) {
    StreamTable table(2048, seed);
    std::vector<uint32_t> buckets;
    size_t evicted = 0;
    for (uint16_t port = 0; port < 1024; ++port) {
      const StreamTable::Inserted inserted = table.insert(key_of(port));
      evicted += inserted.evicted ? 1 : 0;
      buckets.push_back(inserted.index / 8);
    }
    EXPECT_LT(evicted, 50u);  // of 256 buckets with a mean of 4 entries, some 2 % get more than 8
    EXPECT_GT(std::set<uint32_t>(buckets.begin(), buckets.end()).size(), 230u);
    places.push_back(buckets);
  }
  size_t same = 0;
  for (size_t i = 0; i < places[0].size(); ++i) same += places[0][i] == places[1][i] ? 1u : 0u;
  EXPECT_LT(same, 40u);
}

}  // namespace
}  // namespace gradlane::accel::test
