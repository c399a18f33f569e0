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
#include "tools/perf/data.h"
#include "tools/perf/plan.h"

namespace gradlane::test::data_test {
namespace {

constexpr unsigned kWorld = 3;
constexpr size_t kCount = 3 * 6001;  // more than a run of the checker, and no multiple of one

PerfPlan plan_of(const std::string& type, const std::string& data) {
  PerfOptions options;
  options.type = type;
  options.data = data;
  return make_perf_plan(options);
}

std::vector<std::vector<float>> inputs_of(const PerfPlan& plan) {
  std::vector<std::vector<float>> inputs(kWorld, std::vector<float>(kCount));
  for (unsigned rank = 0; rank < kWorld; ++rank) PerfData(plan, rank, kWorld).fill(inputs[rank].data(), kCount);
  return inputs;
}

// What an all-reduce gives, with one block.
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

// What it gives where only copies are made.
std::vector<float> copied(const Codec& codec, const std::vector<float>& input) { return reduced(codec, {input}); }

class PerfDataTest : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(PerfDataTest, RightResultsPass) {
  const auto [data, name] = GetParam();
  const PerfPlan plan = plan_of("float32", data);
  const Codec codec = find_codec(name);
  const auto inputs = inputs_of(plan);
  const std::vector<float> sum = reduced(codec, inputs);
  const size_t block = kCount / kWorld;
  std::vector<float> blocks(kCount);  // block b is that of rank b
  for (unsigned rank = 0; rank < kWorld; ++rank) {
    std::copy_n(inputs[rank].begin() + static_cast<std::ptrdiff_t>(rank * block), block,
                blocks.begin() + static_cast<std::ptrdiff_t>(rank * block));
  }
  for (unsigned rank = 0; rank < kWorld; ++rank) {
    const PerfData checks(plan, rank, kWorld);
    EXPECT_EQ(checks.count_wrong(PerfOp::kAllReduce, codec, sum.data(), kCount), 0u);
    EXPECT_EQ(checks.count_wrong(PerfOp::kReduceScatter, codec, sum.data(), kCount), 0u);
    EXPECT_EQ(checks.count_wrong(PerfOp::kAllGather, codec, copied(codec, blocks).data(), kCount), 0u);
    EXPECT_EQ(checks.count_wrong(PerfOp::kBroadcast, codec, copied(codec, inputs[0]).data(), kCount), 0u);
  }
}

TEST_P(PerfDataTest, WrongElementsAreCounted) {
  const auto [data, name] = GetParam();
  const PerfPlan plan = plan_of("float32", data);
  const Codec codec = find_codec(name);
  std::vector<float> sum = reduced(codec, inputs_of(plan));
  sum[0] += 10000;
  sum[8191] = std::numeric_limits<float>::quiet_NaN();
  sum[kCount - 1] = std::numeric_limits<float>::infinity();
  const PerfData first(plan, 0, kWorld);
  const PerfData last(plan, kWorld - 1, kWorld);
  EXPECT_EQ(first.count_wrong(PerfOp::kAllReduce, codec, sum.data(), kCount), 3u);
  EXPECT_EQ(first.count_wrong(PerfOp::kReduceScatter, codec, sum.data(), kCount), 1u);
  EXPECT_EQ(last.count_wrong(PerfOp::kReduceScatter, codec, sum.data(), kCount), 1u);
}

INSTANTIATE_TEST_SUITE_P(Codecs, PerfDataTest,
                         testing::Values(std::pair("gauss-0.01", "raw"), std::pair("gauss-1", "bf16"),
                                         std::pair("gauss-1", "fp16"), std::pair("gauss-0.1", "fixed:1"),
                                         std::pair("outliers-0.1%", "fixed:10"), std::pair("gauss-1", "fixed:30"),
                                         std::pair("gauss-0.1", "inceptionn:10"),
                                         std::pair("laplace-1e-3", "inceptionn:10,truncate"),
                                         std::pair("denormals-10%", "raw"), std::pair("denormals-10%", "bf16")));

// The bound is not wider than it must be: what a coarser codec gives is found out.
TEST(PerfData, CoarserCodecsAreFoundOut) {
  const PerfPlan plan = plan_of("float32", "gauss-0.1");
  const PerfData checks(plan, 0, kWorld);
  const auto wrong = [&](const char* made_with, const char* promised) {
    const std::vector<float> sum = reduced(find_codec(made_with), inputs_of(plan));
    return checks.count_wrong(PerfOp::kAllReduce, find_codec(promised), sum.data(), kCount);
  };
  EXPECT_GT(wrong("fixed:9", "fixed:11"), kCount / 100);
  EXPECT_GT(wrong("bf16", "raw"), kCount / 2);
  EXPECT_GT(wrong("fixed:20", "raw"), kCount / 2);
}

// Sums of another rank's block, of other ranks or of another order of blocks do not pass.
TEST(PerfData, OtherPlacesAreFoundOut) {
  const PerfPlan plan = plan_of("float32", "gauss-1");
  const auto inputs = inputs_of(plan);
  const Codec raw = find_codec("raw");
  const PerfData checks(plan, 1, kWorld);
  EXPECT_GT(checks.count_wrong(PerfOp::kBroadcast, raw, inputs[1].data(), kCount), kCount / 2);
  EXPECT_GT(checks.count_wrong(PerfOp::kAllReduce, raw, reduced(raw, {inputs[0], inputs[1]}).data(), kCount),
            kCount / 2);
  std::vector<float> sum = reduced(raw, inputs);
  std::rotate(sum.begin(), sum.begin() + kCount / kWorld, sum.end());
  EXPECT_GT(checks.count_wrong(PerfOp::kAllReduce, raw, sum.data(), kCount), kCount / 2);
}

template <typename T>
void check_exact(const char* type) {
  const PerfPlan plan = plan_of(type, "");
  const Codec raw = find_codec("raw");
  std::vector<T> sum(kCount, T{0});
  std::vector<T> input(kCount);
  for (unsigned rank = 0; rank < kWorld; ++rank) {
    PerfData(plan, rank, kWorld).fill(input.data(), kCount);
    for (size_t i = 0; i < kCount; ++i) sum[i] = static_cast<T>(sum[i] + input[i]);
  }
  const PerfData checks(plan, 2, kWorld);
  EXPECT_EQ(checks.count_wrong(PerfOp::kAllReduce, raw, sum.data(), kCount), 0u) << type;
  sum[kCount / 2] = static_cast<T>(sum[kCount / 2] + 1);
  EXPECT_EQ(checks.count_wrong(PerfOp::kAllReduce, raw, sum.data(), kCount), 1u) << type;
}

TEST(PerfData, OtherTypes) {
  check_exact<double>("float64");
  check_exact<uint32_t>("int32");
  check_exact<uint64_t>("int64");
  check_exact<uint8_t>("bytes");
}

TEST(PerfData, HashesTellBytesApart) {
  std::vector<uint8_t> bytes(1003, 7);
  const uint64_t hash = hash_bytes(bytes.data(), bytes.size());
  EXPECT_EQ(hash_bytes(std::vector<uint8_t>(bytes).data(), bytes.size()), hash);
  EXPECT_NE(hash_bytes(bytes.data(), bytes.size() - 1), hash);
  for (const size_t at : {size_t{0}, size_t{500}, bytes.size() - 1}) {
    bytes[at] ^= 1;
    EXPECT_NE(hash_bytes(bytes.data(), bytes.size()), hash) << at;
    bytes[at] ^= 1;
  }
}

TEST(PerfPlan, Sizes) {
  const auto sizes = [](const char* begin, const char* end, const char* factor) {
    PerfOptions options;
    options.begin = begin;
    options.end = end;
    options.factor = factor;
    return make_perf_plan(options).sizes;
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

TEST(PerfPlan, Lists) {
  PerfOptions options;
  options.ops = {"allreduce,all-gather", "reduce_scatter"};
  options.codecs = {"raw,inceptionn:10,truncate,fixed:7"};
  const PerfPlan plan = make_perf_plan(options);
  EXPECT_EQ(plan.ops, (std::vector<PerfOp>{PerfOp::kAllReduce, PerfOp::kAllGather, PerfOp::kReduceScatter}));
  ASSERT_EQ(plan.codecs.size(), 3u);
  EXPECT_EQ(plan.codecs[1].name(), "inceptionn:10,truncate");
  for (const char* bad : {"", "raw,", "truncate", "raw,truncate,raw"}) {
    options.codecs = {bad};
    EXPECT_THROW((void)make_perf_plan(options), SetupError) << bad;
  }
  options.codecs = {"fixed:10"};
  options.type = "int32";
  EXPECT_THROW((void)make_perf_plan(options), SetupError);
}

}  // namespace
}  // namespace gradlane::test::data_test
