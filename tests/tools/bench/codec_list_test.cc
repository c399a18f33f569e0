// codec_list_test.cc - lists of codecs on command lines, pairs of codecs, and the strategies that can carry a codec's
// sums
#include "tools/bench/codec_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"

namespace gradlane::test::codec_list_test {
namespace {

using Names = std::vector<std::string>;

TEST(CodecList, CommasAndBlanks) {
  EXPECT_EQ(codec_list({}), Names{});
  EXPECT_EQ(codec_list({"raw,fixed:7", "bf16"}), (Names{"raw", "fixed:7", "bf16"}));
  EXPECT_EQ(codec_list({"raw,inceptionn:10,truncate,fixed:7"}), (Names{"raw", "inceptionn:10,truncate", "fixed:7"}));
  EXPECT_EQ(codec_list({"inceptionn:10,truncate/raw,raw/inceptionn:9,truncate,bf16"}),
            (Names{"inceptionn:10,truncate/raw", "raw/inceptionn:9,truncate", "bf16"}));
  // codec_list() does not check names: find_codec() does.
  EXPECT_EQ(codec_list({"truncate"}), Names{"truncate"});
  EXPECT_EQ(codec_list({"raw", "truncate"}), (Names{"raw", "truncate"})) << "another argument is another name";
  EXPECT_EQ(codec_list({"raw,"}), Names{"raw,"});
  EXPECT_EQ(codec_list({""}), Names{""});
}

TEST(CodecList, AllIsOneOfEach) {
  const Names all = all_codecs();
  ASSERT_EQ(all.size(), codec_table().size());
  EXPECT_EQ(codec_list({"all"}), all);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(&find_codec(all[i]).row(), &codec_table()[i]);
  Names more = all;
  more.insert(more.begin(), "fixed:3");
  more.emplace_back("raw");
  EXPECT_EQ(codec_list({"fixed:3,all", "raw"}), more);
  EXPECT_EQ(codec_list({"all,all"}).size(), 2 * all.size());
}

// Each name of the table is read as one name, wherever it stands in a list.
TEST(CodecList, NamesStayWhole) {
  for (const std::string& name : all_codecs()) {
    EXPECT_EQ(codec_list({"raw," + name + ",raw"}), (Names{"raw", name, "raw"}));
    EXPECT_FALSE(find_codec_pair(name).back) << name;
    const CodecPair pair = find_codec_pair(name + "/" + name);
    ASSERT_TRUE(pair.back) << name;
    EXPECT_EQ(pair.there.name(), name);
    EXPECT_EQ(pair.back->name(), name);
    EXPECT_EQ(pair.name(), name + "/" + name);
  }
  for (const char* bad : {"", "fixed:10/", "/raw", "fixed:10/raw/raw", "raw/nothing"}) {
    EXPECT_THROW((void)find_codec_pair(bad), SetupError) << bad;
  }
}

TEST(CodecList, Ways) {
  const std::vector<StrategyId> every = find_strategies("ring,direct,rings:2,aggregator:0,stream");
  const std::vector<StrategyId> ring = {StrategyId{}};
  for (const StrategyId& strategy : every) {
    EXPECT_EQ(strategy_fault(find_codec_pair("raw"), strategy, ring), "");
    const bool aggregator = strategy.kind == StrategyId::Kind::kAggregator;
    EXPECT_EQ(strategy_fault(find_codec_pair("fixed:10/raw"), strategy, every).empty(), aggregator);
  }
  for (const CodecRow& row : codec_table()) {
    const CodecPair codec = find_codec_pair(row.example);
    EXPECT_EQ(strategy_fault(codec, StrategyId{}, ring).empty(), strategy_support(row) == StrategySupport::kAny)
        << row.example;
    EXPECT_EQ(strategy_fault(codec, StrategyId{}, ring, 3).empty(), strategy_support(row) != StrategySupport::kOwners)
        << row.example;
    EXPECT_EQ(strategy_fault(codec, StrategyId{}, every).empty(), strategy_support(row) != StrategySupport::kOwners)
        << row.example;
    EXPECT_EQ(strategy_fault(codec, find_strategy("direct"), every), "") << row.example;
    EXPECT_EQ(strategy_fault(codec, find_strategy("rings:2"), every).empty(),
              strategy_support(row) != StrategySupport::kOwners);
  }
}

}  // namespace
}  // namespace gradlane::test::codec_list_test
