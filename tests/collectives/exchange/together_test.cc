// together_test.cc - tests of many small operations in flight at a time, together with a few large ones
#include <gtest/gtest.h>

#include <cctype>
#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include "tests/collectives/exchange/exchange_fixture.h"
#include "tests/collectives/exchange/failure_fixture.h"

namespace gradlane::test::together_test {
namespace {

constexpr size_t kLargestSmall = 4096;  // floats

// Returns jobs of many lengths. Among them are the longest small operations, and some with one element more. With an
// aggregator of four ranks, the longest small ones have a quarter of that length.
std::vector<JobSpec> small_jobs(size_t jobs) {
  constexpr size_t kCounts[] = {1024, 1, 33, 1023, kLargestSmall, kLargestSmall / 4, kLargestSmall / 4 + 1};
  std::vector<JobSpec> specs;
  for (size_t i = 0; i < jobs; ++i) {
    const char* const codec = i % 2 == 0 ? "raw" : "fixed:10";
    specs.push_back({.count = kCounts[i % std::size(kCounts)], .codec = codec});
  }
  return specs;
}

class Together : public testing::TestWithParam<const char*> {};

TEST_P(Together, AreRightUnderLoss) {
  for (const unsigned world : {4U, 8U}) {
    SimConfig config;
    config.nodes = world;
    config.topology = SimTopology::kSwitch;
    config.seed = world;
    config.faults = {.loss = 0.02, .duplicate = 0.01, .reorder = 0.02};
    config.exchange.strategies = find_strategies(GetParam());
    config.exchange.max_bytes = size_t{1} << 20;
    SimNet net(config);
    std::vector<JobSpec> specs = small_jobs(200);
    for (JobSpec& spec : specs) spec.strategy = GetParam();
    for (const size_t large : {20U, 100U}) specs[large].count = 100'000;
    std::vector<Job> jobs = make_jobs(specs, world, world);
    // An aggregator keeps a complete tensor for each rank, so fewer operations count as small.
    const size_t in_flight = specs[0].strategy == "aggregator:0" ? 16 : 64;
    EXPECT_TRUE(run(net, jobs, 60 * kSecond, in_flight));
    EXPECT_TRUE(all_given_back(net));
  }
}

TEST_P(Together, EndWithARestart) {
  SimConfig config = slow_switch(GetParam(), 4, 3, 0.01);
  config.exchange.operations = 16;
  TestRing ring(config);
  for (unsigned rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(rank);
    ASSERT_TRUE(ring.wait_whole(kSecond));
    const std::vector<JobSpec> specs = small_jobs(40);
    const auto jobs = ring.start(specs);
    ring.run_for(100 * kMicrosecond);
    ring.restart(rank);
    EXPECT_TRUE(ring.finish(jobs, 2 * kSecond, {rank}));
    EXPECT_TRUE(ring.ended(jobs, {FailureCode::kRestarted, {rank}}, {rank}));
    EXPECT_TRUE(ring.works());
  }
}

std::string name_of(const testing::TestParamInfo<const char*>& info) {
  std::string name;
  for (const char c : std::string(info.param)) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Ways, Together, testing::Values("ring", "direct", "rings:2", "aggregator:0"), name_of);

// An exchange has four times as many slots as the configured number of operations. Large operations use at most the
// configured number, so the other slots are for small ones.
TEST(TogetherPlaces, SmallOnesBesideLargeOnes) {
  SimConfig config;
  config.nodes = 2;
  config.exchange.operations = 2;
  config.exchange.max_bytes = size_t{1} << 20;
  SimNet net(config);
  const JobSpec small = {.count = kLargestSmall};
  const JobSpec large = {.count = kLargestSmall + 1};
  std::vector<JobSpec> specs = {large, large};
  specs.resize(8, small);
  std::vector<Job> jobs = make_jobs(specs, 2, 1);
  std::vector<Job> more = make_jobs(std::vector{large, small}, 2, 2);
  for (unsigned rank = 0; rank < 2; ++rank) {
    for (size_t i = 0; i < 2; ++i) (void)net.submit(rank, jobs[i].operation(rank));
    EXPECT_EQ(net.try_submit(rank, more[0].operation(rank)).refusal, Exchange::Refusal::kFull);
    for (size_t i = 2; i < 8; ++i) (void)net.submit(rank, jobs[i].operation(rank));
    EXPECT_EQ(net.try_submit(rank, more[1].operation(rank)).refusal, Exchange::Refusal::kFull);
  }
  ASSERT_TRUE(net.run_until_idle(kSecond));
  for (unsigned rank = 0; rank < 2; ++rank) {
    for (Job& job : more) (void)net.submit(rank, job.operation(rank));
  }
  ASSERT_TRUE(net.run_until_idle(2 * kSecond));
  EXPECT_TRUE(all_succeeded(net));
  for (const Job& job : jobs) EXPECT_TRUE(job.right());
  for (const Job& job : more) EXPECT_TRUE(job.right());
}

}  // namespace
}  // namespace gradlane::test::together_test
