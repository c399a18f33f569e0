// reference_test.cc - the reference results of each strategy, compared with sums that are written out
#include "sim/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "collectives/strategy/strategy_id.h"

namespace gradlane::test::reference_test {
namespace {

using Values = std::vector<float>;

// Returns the values that an all-reduce must give. Expects that the reference requires them of all ranks.
Values expected(const std::string& strategy, const Codec& codec, const SimInputs& inputs, unsigned ranks,
                size_t elements, Reduction reduction = Reduction::kSum, const char* back = nullptr) {
  Operation operation;
  operation.strategy = find_strategy(strategy);
  operation.reduction = reduction;
  if (back != nullptr) operation.back_codec = find_codec(back);
  SimReference reference(operation, codec, inputs, ranks);
  Values values;
  for (const SimPiece& piece : reference.pieces(elements)) {
    EXPECT_EQ(piece.begin, values.size());
    EXPECT_EQ(piece.holder, 0U);
    EXPECT_EQ(piece.holders, ranks);
    for (size_t first = piece.begin; first < piece.end; first += SimInputs::kMaxRun) {
      const auto run = reference.run(piece, first, std::min(SimInputs::kMaxRun, piece.end - first));
      values.insert(values.end(), run.begin(), run.end());
    }
  }
  EXPECT_EQ(values.size(), elements);
  return values;
}

bool same_bits(const Values& a, const Values& b) {
  return std::ranges::equal(
      a, b, {}, [](float value) { return std::bit_cast<uint32_t>(value); },
      [](float value) { return std::bit_cast<uint32_t>(value); });
}

float value(const SimInputs& inputs, unsigned rank, size_t at) { return inputs.values(rank, at, 1)[0]; }

// 200 elements are 7 granules; the last granule has 8 elements.
constexpr size_t kElements = 200;

TEST(SimReference, DirectAddsBlocksInTheOrderOfTheRingFromTheOneBehindTheOwner) {
  const SimInputs inputs("gauss-1", 1);
  Values sum;
  for (size_t i = 0; i < kElements; ++i) {
    const unsigned owner = i < 64 ? 0 : i < 128 ? 1 : 2;  // 7 * 1 / 3 = 2 granules, 7 * 2 / 3 = 4
    const auto from = [&](unsigned step) { return value(inputs, (owner + step) % 3, i); };
    sum.push_back((from(1) + from(2)) + from(3));
  }
  EXPECT_TRUE(same_bits(expected("direct", find_codec("raw"), inputs, 3, kElements), sum));
  EXPECT_TRUE(same_bits(expected("ring", find_codec("raw"), inputs, 3, kElements), sum));
}

float to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

TEST(SimReference, DirectRoundsEachContributionAndThenTheSum) {
  const SimInputs inputs("gauss-1", 1);
  Values direct;
  Values ring;
  for (size_t i = 0; i < kElements; ++i) {
    const unsigned owner = i < 64 ? 0 : i < 128 ? 1 : 2;
    const auto from = [&](unsigned step) { return value(inputs, (owner + step) % 3, i); };
    direct.push_back(to_bf16((to_bf16(from(1)) + to_bf16(from(2))) + to_bf16(from(3))));
    ring.push_back(to_bf16(to_bf16(to_bf16(from(1)) + from(2)) + from(3)));
  }
  EXPECT_TRUE(same_bits(expected("direct", find_codec("bf16"), inputs, 3, kElements), direct));
  EXPECT_TRUE(same_bits(expected("ring", find_codec("bf16"), inputs, 3, kElements), ring));
  EXPECT_FALSE(same_bits(direct, ring));
}

TEST(SimReference, AnAggregatorAddsTheWholeTensorFromTheRankBehindIt) {
  const SimInputs inputs("gauss-1", 1);
  Values exact;
  Values rounded;
  Values both;
  for (size_t i = 0; i < kElements; ++i) {
    const auto from = [&](unsigned rank) { return value(inputs, rank, i); };
    exact.push_back((from(2) + from(0)) + from(1));
    rounded.push_back((to_bf16(from(2)) + to_bf16(from(0))) + to_bf16(from(1)));
    both.push_back(to_bf16(rounded.back()));
  }
  const auto get = [&](const char* codec, const char* back) {
    return expected("aggregator:1", find_codec(codec), inputs, 3, kElements, Reduction::kSum, back);
  };
  EXPECT_TRUE(same_bits(get("raw", nullptr), exact));
  EXPECT_TRUE(same_bits(get("bf16", nullptr), rounded));
  EXPECT_TRUE(same_bits(get("bf16", "bf16"), both));
  EXPECT_TRUE(
      same_bits(expected("aggregator:1,stream", find_codec("bf16"), inputs, 3, kElements, Reduction::kSum), rounded));
}

// Six ranks are in two groups of three. Shares have 2, 2 and 3 granules, and each share has a block per group.
TEST(SimReference, RingsGoRoundGroupsAndThenAcrossThem) {
  const SimInputs inputs("gauss-1", 1);
  Values raw;
  Values rounded;
  for (size_t i = 0; i < kElements; ++i) {
    const unsigned share = i < 64 ? 0 : i < 128 ? 1 : 2;
    const size_t granule = i / 32 - 2 * share;
    const unsigned block = granule < 1 ? 0 : 1;  // 2 * 1 / 2 and 3 * 1 / 2 are 1
    const auto member = [&](unsigned group, unsigned step) { return value(inputs, group * 3 + (share + step) % 3, i); };
    const auto of_group = [&](unsigned g) { return (member(g, 1) + member(g, 2)) + member(g, 3); };
    raw.push_back(of_group((block + 1) % 2) + of_group(block));
    const auto hops = [&](unsigned g) { return to_bf16(to_bf16(to_bf16(member(g, 1)) + member(g, 2)) + member(g, 3)); };
    rounded.push_back(to_bf16(hops((block + 1) % 2) + hops(block)));
  }
  EXPECT_TRUE(same_bits(expected("rings:3", find_codec("raw"), inputs, 6, kElements), raw));
  EXPECT_TRUE(same_bits(expected("rings:3", find_codec("bf16"), inputs, 6, kElements), rounded));
}

TEST(SimReference, RingsOfAllOrOfOneAreTheRing) {
  const SimInputs inputs("gauss-1", 1);
  const Values ring = expected("ring", find_codec("raw"), inputs, 6, 10000);
  EXPECT_TRUE(same_bits(expected("rings:6", find_codec("raw"), inputs, 6, 10000), ring));
  EXPECT_TRUE(same_bits(expected("rings:1", find_codec("raw"), inputs, 6, 10000), ring));
  const Values rounded = expected("ring", find_codec("bf16"), inputs, 6, 10000);
  EXPECT_TRUE(same_bits(expected("rings:6", find_codec("bf16"), inputs, 6, 10000), rounded));
  EXPECT_TRUE(same_bits(expected("rings:1", find_codec("bf16"), inputs, 6, 10000), rounded));
  EXPECT_FALSE(same_bits(expected("rings:2", find_codec("raw"), inputs, 6, 10000), ring));
}

TEST(SimReference, FixedIsTheSameByAllWays) {
  const Codec fixed = find_codec("fixed:10");
  const SimInputs inputs("laplace-1e-3", 1);
  const Values ring = expected("ring", fixed, inputs, 12, 50000);
  for (const char* const name :
       {"direct", "rings:2", "rings:3", "rings:4", "rings:6", "aggregator:0", "aggregator:7"}) {
    EXPECT_TRUE(same_bits(expected(name, fixed, inputs, 12, 50000), ring)) << name;
  }
}

TEST(SimReference, MinimaMaximaAndAverages) {
  const SimInputs inputs("gauss-1", 1);
  Values least;
  Values most;
  for (size_t i = 0; i < kElements; ++i) {
    const auto [low, high] = std::minmax({value(inputs, 0, i), value(inputs, 1, i), value(inputs, 2, i)});
    least.push_back(low);
    most.push_back(high);
  }
  for (const char* const name : {"ring", "direct", "rings:3", "aggregator:2"}) {
    // No codec rounds minima and maxima.
    const Codec codec = find_codec("fixed:2");
    EXPECT_TRUE(same_bits(expected(name, codec, inputs, 3, kElements, Reduction::kMin), least)) << name;
    EXPECT_TRUE(same_bits(expected(name, codec, inputs, 3, kElements, Reduction::kMax), most)) << name;
    const Values sum = expected(name, find_codec("raw"), inputs, 3, kElements);
    Values average(sum.size());
    std::ranges::transform(sum, average.begin(), [](float each) { return each / 3; });
    EXPECT_TRUE(same_bits(expected(name, find_codec("raw"), inputs, 3, kElements, Reduction::kAverage), average));
  }
}

// Blocks have equal lengths. The test checks which ranks must have each block.
TEST(SimReference, ScattersAndGathersByEqualBlocks) {
  const SimInputs inputs("gauss-1", 1);
  Operation operation;
  operation.strategy = find_strategy("direct");
  operation.kind = OpKind::kReduceScatter;
  SimReference scatter(operation, find_codec("raw"), inputs, 3);
  const std::vector<SimPiece> pieces = scatter.pieces(300);
  ASSERT_EQ(pieces.size(), 3U);
  for (unsigned b = 0; b < 3; ++b) {
    EXPECT_EQ(pieces[b].begin, 100U * b);
    EXPECT_EQ(pieces[b].end, 100U * (b + 1));
    EXPECT_EQ(pieces[b].holder, b);
    EXPECT_EQ(pieces[b].holders, 1U);
    const size_t at = 100 * b + 50;
    const auto from = [&](unsigned step) { return value(inputs, (b + step) % 3, at); };
    EXPECT_EQ(scatter.run(pieces[b], at, 1)[0], (from(1) + from(2)) + from(3));
  }
  operation.kind = OpKind::kAllGather;
  SimReference gather(operation, find_codec("bf16"), inputs, 3);
  const SimPiece last = gather.pieces(300).at(2);
  EXPECT_EQ(last.holders, 3U);
  EXPECT_EQ(gather.run(last, 250, 1)[0], to_bf16(value(inputs, 2, 250)));
  operation.kind = OpKind::kBroadcast;
  operation.root = 1;
  SimReference broadcast(operation, find_codec("raw"), inputs, 3);
  EXPECT_EQ(broadcast.run(broadcast.pieces(300).at(0), 7, 1)[0], value(inputs, 1, 7));
}

TEST(CountWrong, KnowsOneWayFromTheOther) {
  const SimInputs inputs("gauss-1", 1);
  const Codec codec = find_codec("bf16");
  const SimTensors tensors(4, 5000);
  const Values direct = expected("direct", codec, inputs, 4, 5000);
  for (unsigned rank = 0; rank < 4; ++rank) std::ranges::copy(direct, tensors.of(rank).data());
  Operation operation;
  operation.strategy = find_strategy("direct");
  EXPECT_EQ(count_wrong(operation, codec, inputs, tensors), 0U);
  EXPECT_GT(count_wrong(OpKind::kAllReduce, codec, inputs, tensors), 1000U);
  operation.strategy = find_strategy("rings:2");
  EXPECT_GT(count_wrong(operation, codec, inputs, tensors), 1000U);
  operation.strategy = find_strategy("aggregator:0");
  EXPECT_GT(count_wrong(operation, codec, inputs, tensors), 1000U);
}

}  // namespace
}  // namespace gradlane::test::reference_test
