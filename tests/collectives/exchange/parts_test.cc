// parts_test.cc - tests of parts of the exchange on their own: blocks, absorbed elements, CRC, counters, wire layout
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "collectives/counters.h"
#include "collectives/crc32c.h"
#include "collectives/exchange/blocks.h"
#include "collectives/exchange/pending_bitmap.h"
#include "collectives/wire.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test::parts_test {
namespace {

// ---- Blocks

TEST(Blocks, SpreadGranulesEvenly) {
  Rng rng(1);
  for (unsigned round = 0; round < 3000; ++round) {
    const auto blocks = static_cast<unsigned>(1 + rng.below(rng.one_in(4) ? 256 : 9));
    const size_t granule = size_t{16} << rng.below(4);
    const size_t elements = rng.below(rng.one_in(10) ? size_t{1} << 36 : blocks * granule * 3);
    const Blocks made = Blocks::spread(blocks, elements, granule);
    ASSERT_EQ(made.blocks(), blocks);
    ASSERT_EQ(made.elements(), elements);
    size_t next = 0;
    size_t least = ~size_t{0};
    size_t most = 0;
    for (unsigned b = 0; b < blocks; ++b) {
      ASSERT_EQ(made.offset(b), next);
      if (made.count(b) != 0) {
        ASSERT_EQ(next % granule, 0U);
      }
      next += made.count(b);
      const size_t granules = (made.count(b) + granule - 1) / granule;
      ASSERT_LE(granules, made.max_block_granules());
      least = std::min(least, granules);
      most = std::max(most, granules);
    }
    ASSERT_EQ(next, elements);
    ASSERT_LE(most - least, 1U);
    ASSERT_LE(made.max_block_granules() - most, 1U);
  }
}

TEST(Blocks, OfEqualLength) {
  for (const unsigned blocks : {1U, 2U, 7U, 256U}) {
    for (const size_t each : {size_t{0}, size_t{1}, size_t{31}, size_t{32}, size_t{33}, size_t{1'000'003}}) {
      for (const size_t pad : {size_t{0}, size_t{5}}) {
        const Blocks made = Blocks::equal(blocks, each, 32, each + pad);
        EXPECT_EQ(made.elements(), blocks * each);
        EXPECT_EQ(made.max_block_granules(), (each + 31) / 32);
        for (unsigned b = 0; b < blocks && each != 0; ++b) EXPECT_EQ(made.offset(b), b * (each + pad));
        for (unsigned b = 0; b < blocks; ++b) EXPECT_EQ(made.count(b), each);
      }
    }
  }
}

// ---- Deferred

// Marks and clears elements at random, and compares with a vector of bools. next() must return marked elements of one
// block.
TEST(PendingBitmap, IsLikeAVectorOfBools) {
  Rng rng(2);
  PendingBitmap pending(5000);
  for (unsigned round = 0; round < 60; ++round) {
    const auto blocks = static_cast<unsigned>(1 + rng.below(8));
    const size_t max_block_granules = 1 + rng.below(round % 2 == 0 ? 70 : 600);
    pending.begin(blocks, max_block_granules);  // all earlier marks are forgotten
    std::vector<bool> model(blocks * max_block_granules);
    size_t marked = 0;
    for (unsigned step = 0; step < 400; ++step) {
      ASSERT_EQ(pending.empty(), marked == 0);
      if (rng.one_in(2)) {
        const auto block = static_cast<unsigned>(rng.below(blocks));
        const size_t first = rng.below(max_block_granules);
        const size_t count = 1 + rng.below(std::min<size_t>(max_block_granules - first, 200));
        for (size_t i = 0; i < count; ++i) {  // some of them may be marked already
          const auto each = model.begin() + static_cast<ptrdiff_t>(block * max_block_granules + first + i);
          marked += *each ? 0 : 1;
          *each = true;
        }
        pending.mark(block, first, count);
        continue;
      }
      if (marked == 0) continue;
      const size_t most = 1 + rng.below(100);
      const PendingBitmap::Run run = pending.next(most);
      ASSERT_LT(run.block, blocks);
      ASSERT_GE(run.count, 1U);
      ASSERT_LE(run.count, most);
      ASSERT_LE(run.first + run.count, max_block_granules);
      for (size_t i = 0; i < run.count; ++i) ASSERT_TRUE(model[run.block * max_block_granules + run.first + i]);
      // Perhaps only a part of the run can be sent.
      const size_t sent = rng.below(run.count + 1);
      for (size_t i = 0; i < sent; ++i) model[run.block * max_block_granules + run.first + i] = false;
      marked -= sent;
      if (sent != 0) pending.clear(run.block, run.first, sent);
    }
  }
}

TEST(PendingBitmap, GivesEverythingOnce) {
  PendingBitmap pending(1000);
  for (const size_t most : {size_t{1}, size_t{3}, size_t{64}, size_t{1000}}) {
    pending.begin(10, 100);
    for (unsigned block = 0; block < 10; ++block) pending.mark(block, 0, 100);
    size_t given = 0;
    while (!pending.empty()) {
      const PendingBitmap::Run run = pending.next(most);
      pending.clear(run.block, run.first, run.count);
      given += run.count;
    }
    EXPECT_EQ(given, 1000U);
  }
}

// ---- CRC

uint32_t naive_crc(uint32_t state, std::span<const uint8_t> bytes) {
  for (const uint8_t byte : bytes) {
    state ^= byte;
    for (unsigned bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78U : 0);
  }
  return state;
}

TEST(Crc, IsCastagnolis) {
  const std::string digits = "123456789";
  EXPECT_EQ(~crc32c(kCrcStart, reinterpret_cast<const uint8_t*>(digits.data()), digits.size()), 0xe3069283U);
  std::vector<uint8_t> bytes(32);
  EXPECT_EQ(~crc32c(kCrcStart, bytes.data(), bytes.size()), 0x8a9136aaU);  // RFC 3720, B.4
  std::fill(bytes.begin(), bytes.end(), uint8_t{0xff});
  EXPECT_EQ(~crc32c(kCrcStart, bytes.data(), bytes.size()), 0x62a8ab43U);
}

TEST(Crc, InPieces) {
  Rng rng(4);
  std::vector<uint8_t> bytes(3000);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.bits());
  for (unsigned round = 0; round < 500; ++round) {
    const size_t begin = rng.below(bytes.size());
    const size_t size = rng.below(bytes.size() - begin + 1);
    const std::span<const uint8_t> all(bytes.data() + begin, size);
    const size_t first = rng.below(size + 1);
    const uint32_t state = crc32c(kCrcStart, all.data(), first);
    ASSERT_EQ(crc32c(state, all.data() + first, size - first), naive_crc(kCrcStart, all));
  }
}

// ---- Counters

TEST(Counters, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  Counters counters;
  for (size_t i = 0; i < kCounters; ++i) {
    const auto counter = static_cast<Counter>(i);
    const std::string name = counter_name(counter);
    EXPECT_FALSE(name.empty());
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), std::string::npos) << name;
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_GT(std::string(counter_help(counter)).size(), 5U) << name;
    EXPECT_EQ(counters[counter], 0U);
    counters.add(counter);
    counters.add(counter, i);
  }
  for (size_t i = 0; i < kCounters; ++i) EXPECT_EQ(counters[static_cast<Counter>(i)], i + 1);
}

// ---- Wire

// Returns a struct made of the bytes 1, 2, 3, and so on. With it, tests check that every field is where
// docs/wire-format.md has it, little-endian and without gaps.
template <class Struct>
Struct counting() {
  uint8_t bytes[sizeof(Struct)];
  for (size_t i = 0; i < sizeof(bytes); ++i) bytes[i] = static_cast<uint8_t>(i + 1);
  return load<Struct>(bytes);
}

uint64_t number_at(size_t offset, size_t bytes) {
  uint64_t number = 0;
  for (size_t i = bytes; i-- > 0;) number = number << 8 | (offset + i + 1);
  return number;
}

TEST(Wire, LinkHeader) {
  const auto header = counting<LinkHeader>();
  EXPECT_EQ(header.magic, number_at(0, 2));
  EXPECT_EQ(header.version, number_at(2, 1));
  EXPECT_EQ(static_cast<uint64_t>(header.kind), number_at(3, 1));
  EXPECT_EQ(header.sequence, number_at(4, 4));
  EXPECT_EQ(header.session, number_at(8, 8));
  EXPECT_EQ(header.sack, number_at(16, 8));
  EXPECT_EQ(header.ack, number_at(24, 4));
  EXPECT_EQ(header.credit, number_at(28, 2));
  EXPECT_EQ(header.sack_from, number_at(30, 2));
  EXPECT_EQ(header.stamp, number_at(32, 4));
  EXPECT_EQ(header.echo, number_at(36, 4));
  EXPECT_EQ(header.crc, number_at(40, 4));
}

TEST(Wire, Runs) {
  const auto run = counting<RunHeader>();
  EXPECT_EQ(run.operation, number_at(0, 4));
  EXPECT_EQ(run.digest, number_at(4, 4));
  EXPECT_EQ(run.first, number_at(8, 4));
  EXPECT_EQ(run.count, number_at(12, 2));
  EXPECT_EQ(run.bytes, number_at(14, 2));
  EXPECT_EQ(run.block, number_at(16, 1));
  EXPECT_EQ(static_cast<uint64_t>(run.phase), number_at(17, 1));
  EXPECT_EQ(run.codec, number_at(18, 1));
  EXPECT_EQ(run.param, number_at(19, 1));
}

TEST(Wire, LongestPacketsFitTheirFields) {
  EXPECT_LE(kMaxMtu, 65'535U);           // RunHeader::bytes, Hello::mtu
  EXPECT_LE(kMaxRunElements, 65'535U);   // RunHeader::count
  EXPECT_LE(kMaxWorld - 1, 255U);        // RunHeader::block
  EXPECT_EQ(kMaxRunElements % 128, 0U);  // granules of every type
  EXPECT_GE(kMinPacket, sizeof(LinkHeader) + sizeof(RunHeader) + kGranuleBytes + 8);
  EXPECT_GE(kMinPacket, sizeof(LinkHeader) + sizeof(Hello));
}

}  // namespace
}  // namespace gradlane::test::parts_test
