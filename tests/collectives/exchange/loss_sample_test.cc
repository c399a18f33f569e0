// loss_sample_test.cc - tests of the sampled loss by rounding, and of which operations are sampled
#include "collectives/exchange/loss_sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

namespace gradlane::test::loss_sample_test {
namespace {

Operation sum_of(std::vector<float>& data, const char* codec) {
  Operation op;
  op.count = data.size();
  op.data = data.data();
  op.codec = find_codec(codec);
  return op;
}

Loss loss_of(const Operation& op, uint64_t seed = 1) { return sample_loss(op, Blocks::spread(4, op.count, 32), seed); }

TEST(LossSample, CountsWhatRoundingTakes) {
  // fixed:2 has steps of 1/2, so 0.1 becomes 0, and 0.6 becomes 0.5.
  std::vector<float> data(1000, 0.1F);
  std::fill_n(data.begin(), 250, 0.6F);
  std::fill_n(data.begin() + 250, 250, 0.0F);
  const Loss loss = loss_of(sum_of(data, "fixed:2"));
  EXPECT_EQ(loss.values, 750U);
  EXPECT_EQ(loss.zeroed, 500U);
  EXPECT_NEAR(loss.squares, 250 * 0.36 + 500 * 0.01, 1e-4);
  EXPECT_NEAR(loss.lost_squares, 250 * 0.01 + 500 * 0.01, 1e-4);
  EXPECT_NEAR(loss.lost_share(), std::sqrt(7.5 / 95), 1e-6);
}

TEST(LossSample, NothingIsLostOfExactOnes) {
  std::vector<float> data(5000, 0.5F);
  const Loss loss = loss_of(sum_of(data, "fixed:10"));
  EXPECT_GT(loss.values, 0U);
  EXPECT_EQ(loss.zeroed, 0U);
  EXPECT_EQ(loss.lost_share(), 0);
  EXPECT_EQ(Loss{}.lost_share(), 0);
}

TEST(LossSample, WhatIsNotANumberIsNotCounted) {
  std::vector<float> data(64, std::numeric_limits<float>::quiet_NaN());
  data[1] = std::numeric_limits<float>::infinity();
  data[2] = 1e-9F;
  const Loss loss = loss_of(sum_of(data, "fixed:10"));
  EXPECT_EQ(loss.values, 1U);
  EXPECT_EQ(loss.zeroed, 1U);
  EXPECT_EQ(loss.lost_share(), 1);
  std::vector<float> large(32, 1e5F);  // too large for fp16
  EXPECT_EQ(loss_of(sum_of(large, "fp16")).lost_share(), 1);
}

TEST(LossSample, OnlySumsThatLose) {
  std::vector<float> data(4096, 1e-9F), residual(4096);
  const auto values = [&](auto change, const char* codec = "fixed:10") {
    Operation op = sum_of(data, codec);
    change(op);
    return loss_of(op).values;
  };
  EXPECT_GT(values([](Operation&) {}), 0U);
  EXPECT_GT(values([](Operation& op) { op.kind = OpKind::kReduceScatter; }), 0U);
  EXPECT_EQ(values([](Operation& op) { op.kind = OpKind::kBroadcast; }), 0U);
  EXPECT_EQ(values([](Operation& op) { op.kind = OpKind::kAllGather; }), 0U);
  EXPECT_EQ(values([](Operation& op) { op.type = ElementType::kInt32; }), 0U);
  EXPECT_EQ(values([&](Operation& op) { op.residual = residual.data(); }), 0U);
  EXPECT_EQ(values([](Operation&) {}, "raw"), 0U);
  EXPECT_EQ(values([](Operation&) {}, "fixed:10,stochastic"), 0U);  // its error is noise
}

// The loss of a codec is sampled unless the codec is exact, its error is only noise (unbiased), or it has neither a
// bounded error nor a residual.
TEST(LossSample, OfEachCodec) {
  std::vector<float> data(4096);
  for (size_t i = 0; i < data.size(); ++i) data[i] = 1e-3F / static_cast<float>(1 + i % 97);
  for (const CodecRow& row : codec_table()) {
    if (row.passes != 0) continue;  // the tensor would have to be scanned first
    const Loss loss = loss_of(sum_of(data, row.example));
    const bool looked =
        !row.exact() && !row.unbiased && (row.error(find_codec(row.example).arguments()).bounded || row.feedback);
    EXPECT_EQ(loss.values != 0, looked) << row.word;
    EXPECT_LE(loss.lost_share(), 1.0) << row.word;
  }
}

// Samples lie inside the tensor, and cover every part of it over time.
TEST(LossSample, EachElementHasItsTurn) {
  for (const size_t count : {size_t{1}, size_t{2047}, size_t{2048}, size_t{2049}, size_t{100001}}) {
    std::vector<float> data(count);
    std::set<size_t> seen;
    for (uint64_t seed = 0; seed < 300; ++seed) {
      // Only one value is not zero. The test finds out whether it is sampled.
      const size_t at = seed * 7919 % count;
      data[at] = 1;
      size_t tries = 0;
      while (loss_of(sum_of(data, "fixed:10"), tries).values == 0 && tries < 5000) ++tries;
      EXPECT_LT(tries, 5000U) << count << " " << at;
      data[at] = 0;
    }
    std::iota(data.begin(), data.end(), 1.0F);
    const Loss loss = loss_of(sum_of(data, "fixed:10"));
    EXPECT_EQ(loss.values, std::min(count, kLossRuns * kLossRun));
  }
}

// The blocks of a reduce-scatter lie apart. Nothing between them is read.
TEST(LossSample, BlocksApart) {
  std::vector<float> data(4 * 1000, std::numeric_limits<float>::max());
  for (size_t block = 0; block < 4; ++block)
    std::fill_n(data.begin() + static_cast<ptrdiff_t>(1000 * block), 700, 1e-9F);
  Operation op = sum_of(data, "fixed:10");
  op.kind = OpKind::kReduceScatter;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Loss loss = sample_loss(op, Blocks::equal(4, 700, 32, 1000), seed);
    EXPECT_GT(loss.values, kLossRun * kLossRuns / 2);
    EXPECT_EQ(loss.zeroed, loss.values);
  }
}

}  // namespace
}  // namespace gradlane::test::loss_sample_test
