// data_test.cc - the checks of `gradlane perf`: right results pass, wrong ones are counted
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tools/bench/codec_list.h"
#include "tools/perf/data.h"
#include "tools/perf/settings.h"

namespace gradlane::test::data_test {
namespace {

constexpr unsigned kWorld = 3;
constexpr StrategyId kRing;
constexpr size_t kCount = 3 * 6001;  // longer than a run of the checker, and no multiple of one

PerfSettings plan_of(const std::string& type, const std::string& data) {
  PerfOptions options;
  options.type = type;
  options.data = data;
  return make_perf_settings(options);
}

std::vector<std::vector<float>> inputs_of(const PerfSettings& plan) {
  std::vector<std::vector<float>> inputs(kWorld, std::vector<float>(kCount));
  for (unsigned rank = 0; rank < kWorld; ++rank) PerfData(plan, rank, kWorld).fill(inputs[rank].data(), kCount);
  return inputs;
}

// Returns the result of an all-reduce that uses one block.
std::vector<float> reduced(const Codec& codec, const std::vector<std::vector<float>>& inputs) {
  std::vector<uint8_t> block(codec.max_bytes(kCount));
  std::vector<uint8_t> next(block.size());
  size_t bytes = codec.encode(inputs[0], block).bytes;
  for (size_t rank = 1; rank < inputs.size(); ++rank) {
    bytes = codec.hop({block.data(), bytes}, inputs[rank], next).bytes;
    std::swap(block, next);
  }
  std::vector<float> sum(kCount);
  EXPECT_EQ(codec.decode({block.data(), bytes}, sum), Status::kOk);
  return sum;
}

// Returns the result of an operation that only copies.
std::vector<float> copied(const Codec& codec, const std::vector<float>& input) { return reduced(codec, {input}); }

class PerfDataTest : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(PerfDataTest, RightResultsPass) {
  const auto [data, name] = GetParam();
  const PerfSettings plan = plan_of("float32", data);
  const PerfCodec codec{{find_codec(name)}};
  const auto inputs = inputs_of(plan);
  const std::vector<float> sum = reduced(codec.there, inputs);
  const size_t block = kCount / kWorld;
  std::vector<float> blocks(kCount);  // block b belongs to rank b
  for (unsigned rank = 0; rank < kWorld; ++rank) {
    std::copy_n(inputs[rank].begin() + static_cast<std::ptrdiff_t>(rank * block), block,
                blocks.begin() + static_cast<std::ptrdiff_t>(rank * block));
  }
  for (unsigned rank = 0; rank < kWorld; ++rank) {
    const PerfData checks(plan, rank, kWorld);
    EXPECT_EQ(checks.count_wrong(PerfOp::kAllReduce, kRing, codec, sum.data(), kCount), 0u);
    EXPECT_EQ(checks.count_wrong(PerfOp::kReduceScatter, kRing, codec, sum.data(), kCount), 0u);
    EXPECT_EQ(checks.count_wrong(PerfOp::kAllGather, kRing, codec, copied(codec.there, blocks).data(), kCount), 0u);
    EXPECT_EQ(checks.count_wrong(PerfOp::kBroadcast, kRing, codec, copied(codec.there, inputs[0]).data(), kCount), 0u);
  }
}

TEST_P(PerfDataTest, WrongElementsAreCounted) {
  const auto [data, name] = GetParam();
  const PerfSettings plan = plan_of("float32", data);
  const PerfCodec codec{{find_codec(name)}};
  std::vector<float> sum = reduced(codec.there, inputs_of(plan));
  sum[0] += 10000;
  sum[8191] = std::numeric_limits<float>::quiet_NaN();
  sum[kCount - 1] = std::numeric_limits<float>::infinity();
  const PerfData first(plan, 0, kWorld);
  const PerfData last(plan, kWorld - 1, kWorld);
  EXPECT_EQ(first.count_wrong(PerfOp::kAllReduce, kRing, codec, sum.data(), kCount), 3u);
  EXPECT_EQ(first.count_wrong(PerfOp::kReduceScatter, kRing, codec, sum.data(), kCount), 1u);
  EXPECT_EQ(last.count_wrong(PerfOp::kReduceScatter, kRing, codec, sum.data(), kCount), 1u);
}

INSTANTIATE_TEST_SUITE_P(Codecs, PerfDataTest,
                         testing::Values(std::pair("gauss-0.01", "raw"), std::pair("gauss-1", "bf16"),
                                         std::pair("gauss-1", "fp16"), std::pair("gauss-0.1", "fixed:1"),
                                         std::pair("outliers-0.1%", "fixed:10"), std::pair("gauss-1", "fixed:30"),
                                         std::pair("gauss-0.1", "inceptionn:10"),
                                         std::pair("laplace-1e-3", "inceptionn:10,truncate"),
                                         std::pair("denormals-10%", "raw"), std::pair("denormals-10%", "bf16")));

// The bound is not wider than it must be: the checks detect the result of a coarser codec.
TEST(PerfData, CoarserCodecsAreFoundOut) {
  const PerfSettings plan = plan_of("float32", "gauss-0.1");
  const PerfData checks(plan, 0, kWorld);
  const auto wrong = [&](const char* made_with, const char* promised) {
    const std::vector<float> sum = reduced(find_codec(made_with), inputs_of(plan));
    return checks.count_wrong(PerfOp::kAllReduce, kRing, {{find_codec(promised)}}, sum.data(), kCount);
  };
  EXPECT_GT(wrong("fixed:9", "fixed:11"), kCount / 100);
  EXPECT_GT(wrong("bf16", "raw"), kCount / 2);
  EXPECT_GT(wrong("fixed:20", "raw"), kCount / 2);
}

// Exact sums must be right to the bit: the checks detect even half the error that the bound allows.
TEST(PerfData, ExactSumsAreExact) {
  const PerfSettings plan = plan_of("float32", "gauss-0.1");
  const PerfCodec codec{{find_codec("fixed:10")}};
  std::vector<float> sum = reduced(codec.there, inputs_of(plan));
  const PerfData checks(plan, 1, kWorld);
  sum[5] += 0x1p-9F;
  sum[kCount / 3] -= 0x1p-9F;  // in the block of rank 1
  EXPECT_EQ(checks.count_wrong(PerfOp::kAllReduce, kRing, codec, sum.data(), kCount), 2u);
  EXPECT_EQ(checks.count_wrong(PerfOp::kReduceScatter, kRing, codec, sum.data(), kCount), 1u);
  // With `apart` false, the ranks of a node are added up before anything is encoded. The exact sum is then not known,
  // and errors within the codec's bound are accepted.
  EXPECT_EQ(PerfData(plan, 1, kWorld, false).count_wrong(PerfOp::kAllReduce, kRing, codec, sum.data(), kCount), 0u);
}

// States lose nothing: the result plus the new residuals equals the inputs plus the old residuals.
TEST(PerfData, StatesAreCounted) {
  const PerfSettings plan = plan_of("float32", "gauss-0.1");
  const PerfCodec codec{{find_codec("fixed:5")}};
  const auto inputs = inputs_of(plan);
  std::vector<std::vector<float>> residuals(kWorld, std::vector<float>(kCount));
  std::vector<uint8_t> block(codec.there.max_bytes(kCount));
  std::vector<double> paid(kCount);
  std::vector<float> sum(kCount);
  for (int exchange = 0; exchange < 3; ++exchange) {
    std::ranges::fill(sum, 0.0F);
    std::ranges::fill(paid, 0.0);
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      for (size_t i = 0; i < kCount; ++i) paid[i] += static_cast<double>(residuals[rank][i]);
      const EncodeResult done = codec.there.encode_feedback(inputs[rank], residuals[rank].data(), block);
      ASSERT_EQ(done.floats, kCount);
      ASSERT_EQ(codec.there.decode_add({block.data(), done.bytes}, sum), Status::kOk);
      for (size_t i = 0; i < kCount; ++i) paid[i] -= static_cast<double>(residuals[rank][i]);
    }
    const PerfData checks(plan, 2, kWorld);
    EXPECT_EQ(checks.count_wrong_with_states(PerfOp::kAllReduce, codec, sum.data(), paid.data(), kCount), 0u)
        << exchange;
    EXPECT_EQ(checks.count_wrong_with_states(PerfOp::kReduceScatter, codec, sum.data(), paid.data(), kCount), 0u)
        << exchange;
  }
  const PerfData checks(plan, 2, kWorld);
  sum[7] += 0x1p-4F;
  sum[kCount - 1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(checks.count_wrong_with_states(PerfOp::kAllReduce, codec, sum.data(), paid.data(), kCount), 2u);
  EXPECT_EQ(checks.count_wrong_with_states(PerfOp::kReduceScatter, codec, sum.data(), paid.data(), kCount), 1u);
  EXPECT_GT(
      checks.count_wrong_with_states(PerfOp::kAllReduce, codec, sum.data(), std::vector<double>(kCount).data(), kCount),
      kCount / 4);
}

// Each codec uses the first strategy that can carry it. Codecs that no strategy can carry are left out, and are named.
TEST(PerfSettings, Ways) {
  PerfOptions options;
  options.codecs = {"all"};
  const PerfSettings all = make_perf_settings(options);
  const auto both = find_strategies("ring,direct");
  const PerfCandidates candidates = perf_candidates(all, PerfOp::kAllReduce, both, 4);
  EXPECT_EQ(candidates.candidates.size(), codec_table().size());
  EXPECT_TRUE(candidates.skipped.empty());
  for (const PerfCandidate& candidate : candidates.candidates) {
    const bool owners = strategy_support(candidate.codec.there.row()) == StrategySupport::kOwners;
    EXPECT_EQ(candidate.strategy, both[owners ? 1 : 0]) << candidate.codec.name();
    EXPECT_EQ(candidate.named, owners);
  }
  const PerfCandidates ring = perf_candidates(all, PerfOp::kAllReduce, find_strategies("ring"), 4);
  EXPECT_EQ(ring.candidates.size() + ring.skipped.size(), codec_table().size());
  for (const PerfCandidate& candidate :
       perf_candidates(all, PerfOp::kAllReduce, find_strategies("ring"), 3).candidates) {
    EXPECT_NE(strategy_support(candidate.codec.there.row()), StrategySupport::kOwners)
        << "a ring of three has all links";
  }
  for (const PerfCandidate& candidate : ring.candidates)
    EXPECT_EQ(strategy_support(candidate.codec.there.row()), StrategySupport::kAny);
  const auto lossless = static_cast<size_t>(
      std::ranges::count_if(codec_table(), [](const CodecRow& row) { return row.exact() && !row.rounds_once; }));
  EXPECT_EQ(perf_candidates(all, PerfOp::kBroadcast, both, 4).candidates.size(), lossless);
  // If no allowed strategy supports an operation, it uses the ring.
  const PerfCandidates gather = perf_candidates(all, PerfOp::kAllGather, find_strategies("aggregator:0"), 4);
  ASSERT_EQ(gather.candidates.size(), lossless);
  EXPECT_EQ(gather.candidates[0].strategy, kRing);
  EXPECT_FALSE(gather.candidates[0].named);

  options.strategies = {"ring,direct"};
  const PerfCandidates named = perf_candidates(make_perf_settings(options), PerfOp::kAllReduce, both, 4);
  EXPECT_EQ(named.candidates.size() + named.skipped.size(), 2 * codec_table().size());
  options.codecs = {"fixed:10/raw"};
  options.strategies = {};
  EXPECT_THROW((void)perf_candidates(make_perf_settings(options), PerfOp::kAllReduce, both, 4), SetupError)
      << "no aggregator";
  const PerfCandidates pair =
      perf_candidates(make_perf_settings(options), PerfOp::kAllReduce, find_strategies("ring,aggregator:1"), 4);
  ASSERT_EQ(pair.candidates.size(), 1u);
  EXPECT_EQ(pair.candidates[0].strategy, find_strategy("aggregator:1"));
}

// A result with another rank's data, with contributions of only some ranks, or with blocks in another order does not
// pass.
TEST(PerfData, OtherPlacesAreFoundOut) {
  const PerfSettings plan = plan_of("float32", "gauss-1");
  const auto inputs = inputs_of(plan);
  const Codec raw = find_codec("raw");
  const PerfData checks(plan, 1, kWorld);
  EXPECT_GT(checks.count_wrong(PerfOp::kBroadcast, kRing, {{raw}}, inputs[1].data(), kCount), kCount / 2);
  EXPECT_GT(checks.count_wrong(PerfOp::kAllReduce, kRing, {{raw}}, reduced(raw, {inputs[0], inputs[1]}).data(), kCount),
            kCount / 2);
  std::vector<float> sum = reduced(raw, inputs);
  std::rotate(sum.begin(), sum.begin() + kCount / kWorld, sum.end());
  EXPECT_GT(checks.count_wrong(PerfOp::kAllReduce, kRing, {{raw}}, sum.data(), kCount), kCount / 2);
}

template <typename T>
void check_exact(const char* type) {
  const PerfSettings plan = plan_of(type, "");
  const Codec raw = find_codec("raw");
  std::vector<T> sum(kCount, T{0});
  std::vector<T> input(kCount);
  for (unsigned rank = 0; rank < kWorld; ++rank) {
    PerfData(plan, rank, kWorld).fill(input.data(), kCount);
    for (size_t i = 0; i < kCount; ++i) sum[i] = static_cast<T>(sum[i] + input[i]);
  }
  const PerfData checks(plan, 2, kWorld);
  EXPECT_EQ(checks.count_wrong(PerfOp::kAllReduce, kRing, {{raw}}, sum.data(), kCount), 0u) << type;
  sum[kCount / 2] = static_cast<T>(sum[kCount / 2] + 1);
  EXPECT_EQ(checks.count_wrong(PerfOp::kAllReduce, kRing, {{raw}}, sum.data(), kCount), 1u) << type;
}

TEST(PerfData, OtherTypes) {
  check_exact<double>("float64");
  check_exact<uint32_t>("int32");
  check_exact<uint64_t>("int64");
  check_exact<uint8_t>("bytes");
}

// Minima and maxima must be exact. Elements of int32 and int64 count as signed numbers, bytes as unsigned ones.
template <typename T>
void check_picked(const char* type, const char* reduction, T (*pick)(T, T)) {
  PerfOptions options;
  options.type = type;
  options.reduction = reduction;
  const PerfSettings plan = make_perf_settings(options);
  ASSERT_EQ(plan.codecs.size(), 1u);
  std::vector<T> best(kCount);
  std::vector<T> input(kCount);
  for (unsigned rank = 0; rank < kWorld; ++rank) {
    PerfData(plan, rank, kWorld).fill(input.data(), kCount);
    for (size_t i = 0; i < kCount; ++i) best[i] = rank == 0 ? input[i] : pick(best[i], input[i]);
  }
  for (unsigned rank = 0; rank < kWorld; ++rank) {
    const PerfData checks(plan, rank, kWorld);
    EXPECT_EQ(checks.count_wrong(PerfOp::kAllReduce, kRing, plan.codecs[0], best.data(), kCount), 0u) << type;
    EXPECT_EQ(checks.count_wrong(PerfOp::kReduceScatter, kRing, plan.codecs[0], best.data(), kCount), 0u) << type;
    EXPECT_GT(checks.count_wrong(PerfOp::kAllReduce, kRing, plan.codecs[0], input.data(), kCount), kCount / 8) << type;
  }
  std::memset(&best[kCount / 2], 0x55, sizeof(T));
  EXPECT_EQ(PerfData(plan, 1, kWorld).count_wrong(PerfOp::kAllReduce, kRing, plan.codecs[0], best.data(), kCount), 1u);
  EXPECT_EQ(PerfData(plan, 0, kWorld).count_wrong(PerfOp::kReduceScatter, kRing, plan.codecs[0], best.data(), kCount),
            0u);
}

template <typename T>
T least(T a, T b) {
  return std::min(a, b);
}
template <typename T>
T greatest(T a, T b) {
  return std::max(a, b);
}

TEST(PerfData, MinimaAndMaxima) {
  check_picked<float>("float32", "min", least);
  check_picked<float>("float32", "max", greatest);
  check_picked<double>("float64", "max", greatest);
  check_picked<int32_t>("int32", "min", least);
  check_picked<int64_t>("int64", "max", greatest);
  check_picked<uint8_t>("bytes", "min", least);
  check_picked<uint8_t>("bytes", "max", greatest);
}

// An aggregator rounds the results with a second codec, so the bound grows by that codec's bound.
TEST(PerfData, TwoCodecs) {
  const PerfSettings plan = plan_of("float32", "gauss-0.1");
  const StrategyId aggregator = find_strategy("aggregator:0");
  const PerfData checks(plan, 0, kWorld);
  const Codec there = find_codec("fixed:12");
  const std::vector<float> sum = reduced(there, inputs_of(plan));
  const auto wrong = [&](const char* made_with, const char* promised) {
    const std::vector<float> back = copied(find_codec(made_with), sum);
    return checks.count_wrong(PerfOp::kAllReduce, aggregator, {{there, find_codec(promised)}}, back.data(), kCount);
  };
  EXPECT_EQ(wrong("raw", "raw"), 0u);
  EXPECT_EQ(wrong("fixed:8", "fixed:8"), 0u);
  EXPECT_EQ(wrong("bf16", "bf16"), 0u);
  EXPECT_GT(wrong("fixed:8", "raw"), kCount / 2);
  EXPECT_GT(wrong("fixed:8", "fixed:10"), kCount / 4);
}

TEST(PerfSettings, Sizes) {
  const auto sizes = [](const char* begin, const char* end, const char* factor) {
    PerfOptions options;
    options.begin = begin;
    options.end = end;
    options.factor = factor;
    return make_perf_settings(options).sizes;
  };
  EXPECT_EQ(sizes("64K", "256K", ""), (std::vector<size_t>{65536, 131072, 262144}));
  EXPECT_EQ(sizes("1000", "1M", "1000"), (std::vector<size_t>{1000, 1000000}));
  EXPECT_EQ(sizes("", "4K", ""), (std::vector<size_t>{4096}));
  EXPECT_EQ(sizes("1G", "", ""), (std::vector<size_t>{size_t{1} << 30}));
  EXPECT_EQ(sizes("", "", "").back(), size_t{64} << 20);
  for (const char* bad : {"7", "K", "1T", "1.5M", "-1", "65G", "99999999999999999999", " 64K"}) {
    EXPECT_THROW((void)sizes(bad, "", ""), SetupError) << bad;
  }
  EXPECT_THROW((void)sizes("2M", "1M", ""), SetupError);
  EXPECT_THROW((void)sizes("1M", "2M", "1"), SetupError);
}

TEST(PerfSettings, Lists) {
  PerfOptions options;
  options.ops = {"allreduce,all-gather", "reduce_scatter"};
  options.codecs = {"raw,inceptionn:10,truncate,fixed:7"};
  const PerfSettings plan = make_perf_settings(options);
  EXPECT_EQ(plan.ops, (std::vector<PerfOp>{PerfOp::kAllReduce, PerfOp::kAllGather, PerfOp::kReduceScatter}));
  ASSERT_EQ(plan.codecs.size(), 3u);
  EXPECT_EQ(plan.codecs[1].name(), "inceptionn:10,truncate");
  for (const char* bad : {"", "raw,", "truncate", "raw,truncate,raw"}) {
    options.codecs = {bad};
    EXPECT_THROW((void)make_perf_settings(options), SetupError) << bad;
  }
  options.codecs = {"fixed:10"};
  options.type = "int32";
  EXPECT_THROW((void)make_perf_settings(options), SetupError);
}

TEST(PerfSettings, Strategies) {
  PerfOptions options;
  EXPECT_TRUE(make_perf_settings(options).strategies.empty());
  options.strategies = {"ring,direct", "rings:2,aggregator:1,stream"};
  const PerfSettings plan = make_perf_settings(options);
  EXPECT_EQ(plan.strategies, find_strategies("ring,direct,rings:2,aggregator:1,stream"));
  options.codecs = {"raw,fixed:10/raw"};
  EXPECT_THROW((void)make_perf_settings(options), SetupError) << "a ring has one codec";
  options.strategies = {"aggregator:1"};
  const PerfSettings pair = make_perf_settings(options);
  ASSERT_EQ(pair.codecs.size(), 2u);
  EXPECT_EQ(pair.codecs[1].name(), "fixed:10/raw");
  EXPECT_FALSE(pair.codecs[0].back);
  options.codecs = {"inceptionn:10,truncate/raw,raw/inceptionn:9,truncate,bf16"};
  ASSERT_EQ(make_perf_settings(options).codecs.size(), 3u);
  EXPECT_EQ(make_perf_settings(options).codecs[0].name(), "inceptionn:10,truncate/raw");
  EXPECT_EQ(make_perf_settings(options).codecs[1].name(), "raw/inceptionn:9,truncate");
  options.ops = {"allreduce,allgather"};
  EXPECT_THROW((void)make_perf_settings(options), SetupError) << "an aggregator does not gather";
  options.ops = {};
  for (const char* bad : {"", "fixed:10/", "/raw", "fixed:10/raw/raw"}) {
    options.codecs = {bad};
    EXPECT_THROW((void)make_perf_settings(options), SetupError) << bad;
  }
  options.codecs = {};
  for (const char* bad : {"", "rings", "star", "ring,"}) {
    options.strategies = {bad};
    EXPECT_THROW((void)make_perf_settings(options), SetupError) << bad;
  }
}

TEST(PerfSettings, Reductions) {
  PerfOptions options;
  options.reduction = "max";
  EXPECT_EQ(make_perf_settings(options).codecs.size(), 1u);
  options.codecs = {"fixed:10"};
  EXPECT_THROW((void)make_perf_settings(options), SetupError) << "maxima are exact";
  options.codecs = {};
  options.ops = {"broadcast"};
  EXPECT_THROW((void)make_perf_settings(options), SetupError) << "nothing is reduced";
  options.ops = {};
  for (const char* bad : {"maximum", "mean", "Sum"}) {
    options.reduction = bad;
    EXPECT_THROW((void)make_perf_settings(options), SetupError) << bad;
  }
}

}  // namespace
}  // namespace gradlane::test::data_test
