// decoded_blocks_test.cc - decoded blocks of encoded contributions, which runs share
#include "collectives/exchange/decoded_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "base/random.h"

namespace gradlane::test::decoded_blocks_test {
namespace {

constexpr size_t kSizes[] = {1, 4095, 4096, 100'000, 250'001};

// A contribution by raw, whose float i is `base` + i.
struct Contribution {
  explicit Contribution(size_t size, float base) : floats(size), bytes(max_encoded_bytes(raw, size)) {
    std::iota(floats.begin(), floats.end(), base);
    EXPECT_TRUE(encode_tensor(raw, floats, 0, size, bytes));
    coded = {.bytes = bytes, .first = 0, .floats = size, .codec = raw};
  }

  const Codec raw = find_codec("raw");
  std::vector<float> floats;
  std::vector<uint8_t> bytes;
  EncodedContribution coded;
};

// Several operations advance by runs of any length, each in two places.
TEST(DecodedBlocks, AnyRuns) {
  DecodedBlocks decoded;
  std::vector<Contribution> all;
  for (const size_t size : kSizes) all.emplace_back(size, static_cast<float>(all.size()) * 1e6F);
  std::vector<size_t> places(2 * all.size());
  uint64_t drawn = 0;
  const auto draw = [&](size_t below) { return Random(++drawn).next() % below; };
  for (int i = 0; i < 20'000; ++i) {
    const size_t place = draw(places.size());
    const Contribution& it = all[place / 2];
    size_t& first = places[place];
    if (first == it.floats.size() || draw(50) == 0) first = draw(it.floats.size());
    const size_t most = draw(4) == 0 ? kMaxRunElements : 3000;
    const size_t count = std::min(it.floats.size() - first, 1 + draw(most));
    const float* const found = decoded.get(place / 2, it.coded, first, count);
    ASSERT_NE(found, nullptr);
    ASSERT_EQ(std::memcmp(found, it.floats.data() + first, count * sizeof(float)), 0) << first << " + " << count;
    first += count;
  }
}

// A block is decoded once for all runs in it, so what the trainer writes later does not count.
TEST(DecodedBlocks, OnceForAllRuns) {
  DecodedBlocks decoded;
  Contribution it(3 * kEncodedBlock, 1);
  ASSERT_NE(decoded.get(7, it.coded, 0, 100), nullptr);
  std::ranges::fill(it.bytes, uint8_t{0xff});
  EXPECT_EQ(*decoded.get(7, it.coded, kEncodedBlock - 1, 1), static_cast<float>(kEncodedBlock));
  EXPECT_EQ(decoded.get(7, it.coded, kEncodedBlock - 1, 2), nullptr);  // malformed from the second block on
  EXPECT_EQ(decoded.get(7, it.coded, 0, 1), nullptr);
  EXPECT_EQ(decoded.get(8, it.coded, 0, 1), nullptr);
}

}  // namespace
}  // namespace gradlane::test::decoded_blocks_test
