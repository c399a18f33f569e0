// ends_test.cc - daemons that end in order and ranks that disagree: the errors of each rank, and recovery
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/stack/stack.h"
#include "tests/stack/trainers.h"

namespace gradlane::test::ends_test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

constexpr size_t kMany = 400'000;  // floats

StackConfig two_nodes(unsigned lanes = 1, Nanos shutdown = 2 * kSecond) {
  return {.nodes = 2, .change = [=](NodeConfig& it) {
            it.lanes = lanes;
            it.shutdown_timeout = shutdown;
          }};
}

TEST(End, WhileNothingIsInFlight) {
  Stack stack(two_nodes());
  TrainerGroup team(stack);
  ASSERT_TRUE(all_succeeded(team.all_reduce()));
  const Nanos begin = stack.now();
  for (const unsigned node : {0U, 1U}) stack.end(node);
  ASSERT_TRUE(stack.run_until([&] { return !stack.is_running(0) && !stack.is_running(1); }, 5 * kSecond));
  EXPECT_LT(stack.now() - begin, kSecond) << "nothing has to be waited for";
  for (const auto& [rank, ended] : team.barrier()) {
    EXPECT_EQ(ended.code, GRADLANE_DAEMON_GONE);
    EXPECT_THAT(ended.text, HasSubstr("shutting down"));
  }
}

TEST(End, OperationsInFlightComplete) {
  Stack stack(two_nodes(1, 40 * kSecond));
  TrainerGroup team(stack);
  ASSERT_TRUE(all_succeeded(team.all_reduce()));
  const Data data(2, 1, kMany);
  std::vector<std::span<float>> arrays;
  std::vector<gradlane_request> requests;
  for (const unsigned rank : {0U, 1U}) {
    arrays.push_back(team[rank].zeros(kMany));
    data.fill(rank, 0, arrays.back());
    requests.push_back(team[rank].all_reduce(arrays.back()));
  }
  // Both operations have begun when one rank has received some of the sums.
  const std::vector<float> before(arrays[0].begin(), arrays[0].end());
  ASSERT_TRUE(stack.run_until([&] { return !std::ranges::equal(arrays[0], before); }));
  EXPECT_EQ(team[0].test(requests[0]).code, GRADLANE_PENDING);
  stack.end(0);
  for (const unsigned rank : {0U, 1U}) {
    const Outcome ended = team[rank].wait(requests[rank]);
    EXPECT_EQ(ended.code, GRADLANE_OK) << ended.text;
    EXPECT_EQ(data.wrong(0, arrays[rank]), 0U);
  }
  EXPECT_TRUE(stack.run_until([&] { return !stack.is_running(0); }, kSecond));
  EXPECT_EQ(stack.log_count(0, "still in flight"), 0U);
}

TEST(End, OperationsFailAfterTheTimeout) {
  Stack stack(two_nodes());
  TrainerGroup team(stack);
  ASSERT_TRUE(all_succeeded(team.all_reduce()));
  const gradlane_request request = team[0].barrier();
  stack.run_for(100 * kMillisecond);
  const Nanos begin = stack.now();
  stack.end(0);
  const Outcome ended = team[0].wait(request);
  EXPECT_THAT(ended.text, ContainsRegex("shutting down|rank [0-9] has left"));
  EXPECT_GE(ended.at - begin, 2 * kSecond) << "it has its time";
  EXPECT_LT(ended.at - begin, 3 * kSecond);
  EXPECT_TRUE(stack.run_until([&] { return !stack.is_running(0); }, kSecond));
  EXPECT_EQ(stack.log_count(0, "warning operations are still in flight after 2000 ms: they fail"), 1U);
}

TEST(End, ErrorsNameTheKilledDaemon) {
  Stack stack(two_nodes());
  TrainerGroup team(stack);
  const gradlane_request request = team[0].all_reduce(team[0].zeros(1000));
  stack.run_for(50 * kMillisecond);
  for (const unsigned node : {0U, 1U}) stack.kill(node);
  const Outcome ended = team[0].wait(request);
  EXPECT_EQ(ended.code, GRADLANE_DAEMON_GONE);
  EXPECT_THAT(ended.text, HasSubstr(stack.config(0).socket));
}

TEST(End, OneNodeIsRestartedInOrder) {
  for (const unsigned node : {0U, 1U}) {
    Stack stack(two_nodes());
    TrainerGroup team(stack);
    ASSERT_TRUE(all_succeeded(team.all_reduce()));
    const gradlane_request request = team[1 - node].barrier();
    team.close(node);
    stack.end(node);
    ASSERT_TRUE(stack.run_until([&] { return !stack.is_running(node); }));
    EXPECT_THAT(team[1 - node].wait(request).text, HasSubstr("rank " + std::to_string(node)));
    stack.start(node);
    team.open(node);
    EXPECT_TRUE(stack.poll_until([&] { return stack.logged(node, "the ring is ready"); }));
    team.resume(1000);
    EXPECT_TRUE(all_succeeded(team.all_reduce()));
  }
}

// ---- Disagreement

using Begin = std::function<gradlane_code(gradlane_context*, gradlane_request*)>;

Begin reduce(size_t count, gradlane_type type = GRADLANE_FLOAT32, const How& how = {}, bool average = false) {
  return [=](gradlane_context* gl, gradlane_request* request) {
    gradlane_how it = how_of(how);
    it.average = average ? 1 : 0;
    void* data = nullptr;
    const gradlane_code code = gradlane_alloc(gl, std::max<size_t>(count, 1) * 8, &data);
    return code != GRADLANE_OK ? code : gradlane_all_reduce(gl, data, count, type, &it, request);
  };
}

Begin broadcast(size_t count, int root) {
  return [=](gradlane_context* gl, gradlane_request* request) {
    void* data = nullptr;
    const gradlane_code code = gradlane_alloc(gl, count * sizeof(float), &data);
    return code != GRADLANE_OK ? code : gradlane_broadcast(gl, data, count, GRADLANE_FLOAT32, root, nullptr, request);
  };
}

gradlane_code barrier(gradlane_context* gl, gradlane_request* request) {
  return gradlane_barrier(gl, nullptr, request);
}

struct Pair {
  Begin first;
  Begin second;
  const char* what;
  const char* values[2];
};

class Disagreement : public testing::TestWithParam<unsigned> {};

TEST_P(Disagreement, IsNamedOnBothSides) {
  constexpr size_t kBig = 100'000;  // elements; this many are divided among lanes, while 1000 are not
  const Pair pairs[] = {
      {reduce(1000), reduce(1001), "count", {"1000", "1001"}},
      {reduce(kBig), reduce(kBig + 1), "count", {"100000", "100001"}},
      {reduce(10), reduce(kBig), "count", {"10", "100000"}},
      {reduce(0), reduce(10), "count", {"0", "10"}},
      {reduce(1000), reduce(1000, GRADLANE_INT32), "type", {"float32", "int32"}},
      {reduce(kBig, GRADLANE_FLOAT64), reduce(kBig, GRADLANE_FLOAT16), "type", {"float64", "float16"}},
      {reduce(kBig, GRADLANE_FLOAT32, {.codec = "raw"}),
       reduce(kBig, GRADLANE_FLOAT32, {.codec = "fixed:7"}),
       "codec",
       {"raw", "fixed:7"}},
      {reduce(1000, GRADLANE_FLOAT32, {}, true), reduce(1000), "reduction", {"average", "sum"}},
      {reduce(1000, GRADLANE_FLOAT32, {.tag = 7}), reduce(1000, GRADLANE_FLOAT32, {.tag = 8}), "tag", {"7", "8"}},
      {reduce(1000), barrier, "kind", {"all-reduce", "barrier"}},
      {broadcast(kBig, 0), broadcast(kBig, 1), "root", {"0", "1"}},
  };
  for (const Pair& pair : pairs) {
    SCOPED_TRACE(pair.what);
    Stack stack(two_nodes(GetParam()));
    TrainerGroup team(stack);
    for (const bool swapped : {false, true}) {
      gradlane_request requests[2] = {};
      for (const unsigned rank : {0U, 1U}) {
        const Begin& begin = (rank == 0) == swapped ? pair.second : pair.first;
        ASSERT_EQ(begin(team[rank].gl(), &requests[rank]), GRADLANE_OK) << gradlane_error(team[rank].gl());
      }
      stack.wake_all();
      for (const unsigned rank : {0U, 1U}) {
        const Outcome ended = team[rank].wait(requests[rank]);
        EXPECT_EQ(ended.code, GRADLANE_FAILED);
        for (const char* const value : pair.values) {
          EXPECT_THAT(ended.text, ContainsRegex(std::string(pair.what) + ": .*\\b" + value + "\\b"));
        }
      }
      // The rank that saw the failure first may have resumed alone, so all ranks resume here (docs/client.md).
      team.resume();
      EXPECT_TRUE(all_succeeded(team.all_reduce()));
      EXPECT_TRUE(all_succeeded(team.all_reduce(kBig)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Lanes, Disagreement, testing::Values(1U, 2U));

// Only rank 0 counts an operation that rank 1 never starts. Both ranks count from the same number after resume().
TEST(Resume, AfterATimeoutOnOneRank) {
  Stack stack(two_nodes());
  TrainerGroup team(stack);
  ASSERT_TRUE(all_succeeded(team.all_reduce()));
  const Outcome outcome = team[0].wait(team[0].barrier({.timeout_ms = 500}));
  EXPECT_EQ(outcome.code, GRADLANE_FAILED);
  EXPECT_THAT(outcome.text, HasSubstr("took too long"));
  team.resume();
  EXPECT_TRUE(all_succeeded(team.all_reduce()));
  EXPECT_TRUE(all_succeeded(team.all_reduce(kMany)));
}

}  // namespace
}  // namespace gradlane::test::ends_test
