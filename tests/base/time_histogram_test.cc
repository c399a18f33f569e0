// time_histogram_test.cc - tests of which bucket counts a time
#include "base/time_histogram.h"

#include <gtest/gtest.h>

namespace gradlane::test::time_histogram_test {
namespace {

using Small = TimeHistogram<3, 2>;  // three buckets: up to 8 ns, up to 16 ns, above

TEST(TimeHistogram, BoundsBelongToWhatIsBelowThem) {
  Small times;
  for (const Nanos time : std::initializer_list<Nanos>{0, 1, 8, 9, 16, 17}) times.add(time);
  EXPECT_EQ(times.counts, (std::array<uint64_t, 3>{3, 2, 1}));
  EXPECT_EQ(times.sum, 51U);
  EXPECT_EQ(Small::bound(0), 8U);
  EXPECT_EQ(Small::bound(1), 16U);
}

TEST(TimeHistogram, TheLongestTimes) {
  OperationHistogram times;
  times.add(60 * kSecond);
  times.add(UINT64_MAX);
  EXPECT_EQ(times.counts[22], 1U);
  EXPECT_EQ(times.counts[23], 1U);
  EXPECT_EQ(OperationHistogram::bound(22), 68'719'476'736U);
  EXPECT_EQ(RttHistogram::bound(19), 2'147'483'648U);
}

}  // namespace
}  // namespace gradlane::test::time_histogram_test
