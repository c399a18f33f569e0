// divided_test.cc - tests of one tensor divided among several exchanges, as the lanes of a node divide it
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "tests/collectives/exchange/exchange_fixture.h"

namespace gradlane::test::divided_test {
namespace {

constexpr unsigned kWorld = 4;
constexpr size_t kLanes = 3;

SimConfig lane_config() {
  SimConfig config;
  config.nodes = kWorld;
  config.topology = SimTopology::kSwitch;
  config.exchange.strategies = find_strategies("ring,direct");
  config.exchange.max_bytes = size_t{4} << 20;
  return config;
}

// Returns the operation on elements `first` to `first + count` of the tensor, or of each rank's block.
Operation part_of(const Operation& whole, size_t first, size_t count) {
  Operation part = whole;
  part.whole = whole.count;
  part.count = count;
  part.data = static_cast<uint8_t*>(whole.data) + first * element_bytes(whole.type);
  if (whole.out != nullptr) part.out = static_cast<uint8_t*>(whole.out) + first * element_bytes(whole.type);
  if (whole.residual != nullptr) part.residual = whole.residual + first;
  if (has_shares(whole.kind)) part.pitch = whole.count;
  return part;
}

// Runs each kind of operation on a tensor that is divided among three networks. The last part is empty for short
// tensors.
TEST(Divided, GivesWhatOneExchangeGives) {
  std::array<SimNet, kLanes> lanes{SimNet(lane_config()), SimNet(lane_config()), SimNet(lane_config())};
  for (const size_t count : {size_t{50}, size_t{10'007}}) {
    const size_t cut = count / 3 / 32 * 32 + 32;
    const std::array<size_t, kLanes + 1> cuts = {0, cut, std::min(2 * cut, count), count};
    std::vector<JobSpec> specs = all_kinds(kWorld, count, count, "fixed:10");
    std::ranges::copy(direct_kinds(kWorld, count, count, "fixed:10"), std::back_inserter(specs));
    for (JobSpec spec : specs) {
      if (spec.kind == OpKind::kBarrier) continue;
      spec.feedback = reduces(spec.kind);
      Job job(spec, kWorld, 7);
      for (size_t lane = 0; lane < kLanes; ++lane) {
        for (unsigned rank = 0; rank < kWorld; ++rank) {
          lanes[lane].submit(rank, part_of(job.operation(rank), cuts[lane], cuts[lane + 1] - cuts[lane]));
        }
        ASSERT_TRUE(lanes[lane].run_until([&] { return lanes[lane].idle(); }, lanes[lane].now() + 10 * kSecond));
        ASSERT_TRUE(all_succeeded(lanes[lane])) << spec;
      }
      EXPECT_TRUE(job.right()) << spec;
    }
  }
}

// The parts have the same length, but belong to tensors of different lengths.
TEST(Divided, ComparesTheWhole) {
  SimNet net(lane_config());
  std::array<float, 32> data{};
  for (unsigned rank = 0; rank < kWorld; ++rank) {
    Operation part;
    part.data = data.data();
    part.count = data.size();
    part.whole = rank == 2 ? 70 : 64;
    net.submit(rank, part);
  }
  ASSERT_TRUE(net.run_until([&] { return net.idle(); }, net.now() + 10 * kSecond));
  for (unsigned rank = 0; rank < kWorld; ++rank) {
    const Failure failure = net.node(rank).completions().front().failure;
    EXPECT_EQ(failure.code, FailureCode::kMismatch);
    EXPECT_EQ(failure.field, Field::kCount);
    EXPECT_EQ(failure.ours + failure.theirs, 134U);
  }
}

TEST(Divided, RefusesAPitchThatOverlaps) {
  SimNet net(lane_config());
  std::array<float, 4 * 32> data{};
  Operation part;
  part.kind = OpKind::kReduceScatter;
  part.data = data.data();
  part.count = 32;
  part.pitch = 31;
  EXPECT_EQ(net.node(0).exchange().submit(part, net.now()).refusal, Exchange::Refusal::kBad);
  part.kind = OpKind::kAllReduce;
  part.pitch = 32;
  EXPECT_EQ(net.node(0).exchange().submit(part, net.now()).refusal, Exchange::Refusal::kBad);
}

// A rank that gets another trainer begins a new generation, except if none_submitted() is true: no operation of this
// generation was submitted.
TEST(Fresh, UntilTheFirstOperationOfAGeneration) {
  SimNet net(lane_config());
  const auto whole = [&] { return net.node(0).exchange().ring_status().ready; };
  ASSERT_TRUE(net.run_until(whole, net.now() + kSecond));
  EXPECT_TRUE(net.node(0).exchange().none_submitted());
  for (unsigned rank = 0; rank < kWorld; ++rank) net.submit(rank, barrier());
  ASSERT_TRUE(net.run_until([&] { return net.idle(); }, net.now() + 10 * kSecond));
  EXPECT_FALSE(net.node(0).exchange().none_submitted());
  net.close(0);
  const auto all_fresh = [&] {
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      if (!net.node(rank).exchange().none_submitted() || !net.node(rank).exchange().ring_status().ready) return false;
    }
    return true;
  };
  EXPECT_TRUE(net.run_until(all_fresh, net.now() + kSecond));
}

}  // namespace
}  // namespace gradlane::test::divided_test
