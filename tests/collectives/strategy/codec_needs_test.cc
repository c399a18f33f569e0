// codec_needs_test.cc - tests of which strategies the sums of each codec can use
#include "collectives/strategy/codec_needs.h"

#include <gtest/gtest.h>

#include "collectives/wire.h"

namespace gradlane::test::codec_ways_test {
namespace {

TEST(StrategySupport, Links) {
  EXPECT_TRUE(links_all(find_strategies("ring"), 1));
  EXPECT_TRUE(links_all(find_strategies("ring"), 2));
  EXPECT_TRUE(links_all(find_strategies("ring"), 3));
  EXPECT_FALSE(links_all(find_strategies("ring"), 4));
  EXPECT_FALSE(links_all(find_strategies("ring,rings:2,aggregator:0"), 6));
  EXPECT_TRUE(links_all(find_strategies("ring,direct"), 4));
  EXPECT_TRUE(links_all(find_strategies("ring,direct"), kMaxWorld));
}

TEST(StrategySupport, Owners) {
  for (const CodecRow& row : codec_table()) {
    for (const char* const name : {"ring", "rings:2"}) {
      EXPECT_EQ(carries(find_strategy(name), row, 2), row.is_additive) << row.word;
      EXPECT_TRUE(carries(find_strategy(name), row, 1)) << "with nobody to add to";
    }
    for (const char* const name : {"direct", "aggregator:0", "aggregator:0,stream"}) {
      EXPECT_TRUE(carries(find_strategy(name), row, 2)) << row.word;
    }
  }
}

}  // namespace
}  // namespace gradlane::test::codec_ways_test
