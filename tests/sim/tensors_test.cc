// tensors_test.cc - count_wrong(), which must tell right results of simulated operations from wrong ones
#include "sim/tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "sim/simnet.h"

namespace gradlane::test::tensors_test {
namespace {

constexpr OpKind kKinds[] = {OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllGather, OpKind::kBroadcast};

Operation operation_of(OpKind kind, const SimTensors& tensors, unsigned rank) {
  Operation operation;
  operation.kind = kind;
  const bool counts_share = kind == OpKind::kReduceScatter || kind == OpKind::kAllGather;
  operation.count = counts_share ? tensors.elements() / tensors.ranks() : tensors.elements();
  operation.data = tensors.of(rank).data();
  return operation;
}

void fill(const SimInputs& inputs, const SimTensors& tensors) {
  for (unsigned rank = 0; rank < tensors.ranks(); ++rank) inputs.fill(rank, tensors.of(rank));
}

// Runs the exchange on a network that loses, duplicates, delays and corrupts packets.
void exchange(OpKind kind, const Codec& codec, const SimTensors& tensors) {
  SimConfig config;
  config.nodes = tensors.ranks();
  config.exchange.codec = codec;
  config.faults = {.loss = 0.01, .duplicate = 0.01, .reorder = 0.01, .corrupt = 0.01};
  SimNet net(config);
  for (unsigned rank = 0; rank < net.nodes(); ++rank) net.submit(rank, operation_of(kind, tensors, rank));
  ASSERT_TRUE(net.run_until_idle(20 * kSecond));
  for (unsigned rank = 0; rank < net.nodes(); ++rank) {
    ASSERT_EQ(net.node(rank).completions()[0].failure, Failure{}) << "rank " << rank;
  }
}

TEST(SimInputs, AreTheSameForTheSameSeedAndDifferBetweenRanks) {
  const SimInputs inputs("laplace-1e-3", 1);
  const SimInputs same("laplace-1e-3", 1);
  const SimInputs other("laplace-1e-3", 2);
  const auto copy = [](std::span<const float> values) { return std::vector<float>(values.begin(), values.end()); };
  EXPECT_EQ(copy(inputs.values(1, 100000, 100)), copy(same.values(1, 100000, 100)));
  EXPECT_NE(copy(inputs.values(1, 100000, 100)), copy(other.values(1, 100000, 100)));
  EXPECT_NE(copy(inputs.values(1, 100000, 100)), copy(inputs.values(2, 100000, 100)));
  std::vector<float> filled(100100);
  inputs.fill(1, filled);
  EXPECT_EQ(std::vector<float>(filled.end() - 100, filled.end()), copy(inputs.values(1, 100000, 100)));
}

// The test writes out fp32 sums. 100 elements are 4 granules: blocks 0 and 1 have one each, and block 2 has two.
TEST(CountWrong, TakesPlainAdditionInRingOrderForRight) {
  const SimInputs inputs("gauss-1", 1);
  const SimTensors tensors(3, 100);
  fill(inputs, tensors);
  std::vector<float> sum(100);
  for (size_t i = 0; i < 100; ++i) {
    const unsigned block = i < 32 ? 0 : i < 64 ? 1 : 2;
    const auto share = [&](unsigned step) { return tensors.of((block + step) % 3)[i]; };
    sum[i] = (share(1) + share(2)) + share(3);
  }
  for (unsigned rank = 0; rank < 3; ++rank) std::ranges::copy(sum, tensors.of(rank).data());
  EXPECT_EQ(count_wrong(OpKind::kAllReduce, find_codec("raw"), inputs, tensors), 0U);
}

TEST(CountWrong, FindsNothingWrongWithTheExchange) {
  for (const unsigned ranks : {1U, 2U, 5U}) {
    for (const char* const name : {"raw", "bf16", "inceptionn:10,truncate", "fixed:10"}) {
      for (const OpKind kind : kKinds) {
        const Codec codec = find_codec(name);
        const SimInputs inputs("outliers-0.1%", 1);
        const SimTensors tensors(ranks, 20010 / ranks * ranks);
        fill(inputs, tensors);
        exchange(kind, codec, tensors);
        EXPECT_EQ(count_wrong(kind, codec, inputs, tensors), 0U) << op_name(kind) << ", " << name << ", " << ranks;
      }
    }
  }
}

TEST(CountWrong, CountsEveryElementThatDiffersByABit) {
  const Codec codec = find_codec("fixed:10");
  const SimInputs inputs("laplace-1e-3", 1);
  for (const OpKind kind : kKinds) {
    const SimTensors tensors(3, 30000);
    fill(inputs, tensors);
    exchange(kind, codec, tensors);
    const auto flip = [&](unsigned rank, size_t at) {
      uint32_t bits = 0;
      std::memcpy(&bits, &tensors.of(rank)[at], sizeof bits);
      bits ^= 1;
      std::memcpy(&tensors.of(rank)[at], &bits, sizeof bits);
    };
    flip(0, 0);
    flip(1, 10000);
    flip(1, 10001);
    flip(2, 29999);
    EXPECT_EQ(count_wrong(kind, codec, inputs, tensors), 4U) << op_name(kind);
    // After a reduce-scatter, the content of a rank's other blocks is undefined.
    flip(0, 29999);
    EXPECT_EQ(count_wrong(kind, codec, inputs, tensors), kind == OpKind::kReduceScatter ? 4U : 5U) << op_name(kind);
  }
}

// The test writes out where each block of two elements comes from.
TEST(CountWrong, OfWhatIsDelivered) {
  const SimInputs inputs("gauss-1", 1);
  for (const OpKind kind : {OpKind::kGather, OpKind::kScatter, OpKind::kAllToAll}) {
    SimTensors tensors(3, 6);
    fill(inputs, tensors);
    for (unsigned rank = 0; rank < 3; ++rank) {
      for (size_t block = 0; block < 3; ++block) {
        auto from = static_cast<unsigned>(block);
        size_t place = block;
        if (kind == OpKind::kAllToAll) place = rank;
        if (kind == OpKind::kGather && rank != 1) from = rank;
        if (kind == OpKind::kScatter) from = block == rank ? 1 : rank;
        std::ranges::copy(inputs.values(from, 2 * place, 2), tensors.of(rank).data() + 2 * block);
      }
    }
    Operation operation;
    operation.kind = kind;
    operation.root = 1;
    operation.strategy = find_strategy("direct");
    EXPECT_EQ(count_wrong(operation, find_codec("raw"), inputs, tensors), 0U) << op_name(kind);
    std::swap(tensors.of(2)[0], tensors.of(2)[2]);
    EXPECT_EQ(count_wrong(operation, find_codec("raw"), inputs, tensors), 2U) << op_name(kind);
  }
}

TEST(CountWrong, NoticesBlocksThatChangedPlaces) {
  const Codec codec = find_codec("raw");
  const SimInputs inputs("laplace-1e-3", 1);
  const SimTensors tensors(2, 4 * 65536);
  fill(inputs, tensors);
  exchange(OpKind::kAllReduce, codec, tensors);
  const std::span<float> tensor = tensors.of(1);
  std::swap_ranges(tensor.begin(), tensor.begin() + 65536, tensor.begin() + 65536);
  EXPECT_GT(count_wrong(OpKind::kAllReduce, codec, inputs, tensors), 100000U);
}

TEST(CountWrong, OfUntouchedInputsAlmostAll) {
  const SimInputs inputs("gauss-1", 1);
  const SimTensors tensors(2, 10000);
  fill(inputs, tensors);
  EXPECT_GT(count_wrong(OpKind::kAllReduce, find_codec("raw"), inputs, tensors), 19000U);
}

}  // namespace
}  // namespace gradlane::test::tensors_test
