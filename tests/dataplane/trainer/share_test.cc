// share_test.cc - the parts of a tensor that lanes work on
#include "dataplane/trainer/share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "client/abi.h"

namespace gradlane::test::share_test {
namespace {

constexpr size_t kWidths[] = {1, 2, 4, 8};

void check(size_t count, size_t width, unsigned lanes) {
  const size_t granule = kGranuleBytes / width;
  size_t next = 0;
  size_t least = ~size_t{0};
  size_t most = 0;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    const Share share = share_of(count, width, lane, lanes);
    ASSERT_LE(share.first, count);
    ASSERT_LE(share.count, count - share.first);
    if (share.count != 0) {
      ASSERT_EQ(share.first, next) << count << " elements, lane " << lane << " of " << lanes;
      ASSERT_EQ(share.first % granule, 0U);
    }
    next += share.count;
    const size_t granules = (share.count + granule - 1) / granule;
    least = std::min(least, granules);
    most = std::max(most, granules);
  }
  ASSERT_EQ(next, count) << "exactly all of it";
  if (count * width >= kLeastShareBytes) {
    ASSERT_LE(most - least, 1U) << count << " elements for " << lanes;
  }
}

TEST(Share, CoversTheTensorExactlyInGranules) {
  std::mt19937_64 random(1);
  std::vector<size_t> counts = {0, 1, 31, 32, 33, 127, 128, 129};
  for (const size_t width : kWidths) {
    for (const size_t around : {kLeastShareBytes / width, size_t{1} << 20, size_t{1} << 30}) {
      for (size_t off = 0; off < 3; ++off) counts.insert(counts.end(), {around - off, around + off});
    }
  }
  for (int i = 0; i < 200; ++i) counts.push_back(random() >> (24 + random() % 40));
  for (const size_t count : counts) {
    for (const size_t width : kWidths) {
      for (unsigned lanes = 1; lanes <= GL_MAX_LANES; ++lanes) check(count, width, lanes);
    }
  }
}

TEST(Share, SmallTensorsAreTheFirstLanesAlone) {
  for (const size_t width : kWidths) {
    const size_t count = kLeastShareBytes / width - 1;
    EXPECT_EQ(share_of(count, width, 0, 3).count, count);
    for (unsigned lane = 1; lane < 3; ++lane) EXPECT_EQ(share_of(count, width, lane, 3).count, 0U);
    EXPECT_NE(share_of(count + 1, width, 2, 3).count, 0U);
  }
}

// No multiplication may wrap for the largest tensor an exchange can be made for.
TEST(Share, LargestTensors) {
  for (const size_t width : kWidths) {
    for (const unsigned lanes : {2U, 15U, GL_MAX_LANES}) check((size_t{1} << 38) / width, width, lanes);
  }
}

}  // namespace
}  // namespace gradlane::test::share_test
