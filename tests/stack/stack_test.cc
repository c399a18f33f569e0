// stack_test.cc - the stack itself: time, daemons that start and end, and trainers that wait
#include "tests/stack/stack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/stack/trainers.h"

namespace gradlane::test::stack_test {
namespace {

using testing::HasSubstr;

std::vector<std::unique_ptr<Trainer>> all_trainers(Stack& stack) {
  std::vector<std::unique_ptr<Trainer>> all;
  for (unsigned rank = 0; rank < stack.world(); ++rank) {
    all.push_back(std::make_unique<Trainer>(stack, rank));
    EXPECT_TRUE(all.back()->is_open()) << all.back()->error();
  }
  return all;
}

TEST(Stack, TrainersOfFourDaemonsAdd) {
  Stack stack;
  ASSERT_TRUE(stack.run_until([&] { return stack.is_complete(); }));
  const auto trainers = all_trainers(stack);
  const Data data(stack.world(), 1, 100'000);
  std::vector<std::span<float>> arrays;
  std::vector<gradlane_request> requests;
  for (const auto& it : trainers) {
    arrays.push_back(it->zeros(data.count()));
    data.fill(it->rank(), 3, arrays.back());
    requests.push_back(it->all_reduce(arrays.back()));
    ASSERT_NE(requests.back(), 0U) << it->error();
  }
  for (unsigned rank = 0; rank < stack.world(); ++rank) {
    const Outcome ended = trainers[rank]->wait(requests[rank]);
    EXPECT_EQ(ended.code, GRADLANE_OK) << ended.text;
    EXPECT_EQ(data.wrong(3, arrays[rank]), 0U);
  }
}

TEST(Stack, TenSecondsOfNothingAreFewSteps) {
  Stack stack;
  const auto trainers = all_trainers(stack);
  ASSERT_TRUE(stack.run_until([&] { return stack.is_complete(); }));
  const uint64_t begin = stack.steps();
  stack.run_for(10 * kSecond);
  EXPECT_LT(stack.steps() - begin, 20'000U);
}

// A machine that is suspended stops its trainer and its daemon together, so no time passes for either of them.
TEST(Stack, ATrainerThatWasStoppedWithItsDaemonDoesNotGiveItUp) {
  Stack stack({.nodes = 2, .change = [](NodeConfig& it) { it.peer_timeout = it.operation_timeout = 1000 * kSecond; }});
  const auto trainers = all_trainers(stack);
  const gradlane_request request = trainers[0]->barrier();
  EXPECT_EQ(trainers[0]->wait(request, 2 * kSecond).code, GRADLANE_PENDING);
  stack.stop(0, true);
  EXPECT_EQ(trainers[0]->wait(request, 2 * kSecond).code, GRADLANE_PENDING);
  stack.run_for(60 * kSecond);
  EXPECT_EQ(trainers[0]->test(request).code, GRADLANE_PENDING);
  stack.stop(0, false);
  const gradlane_request other = trainers[1]->barrier();
  for (const auto& [trainer, its] : {std::pair(0, request), std::pair(1, other)}) {
    EXPECT_EQ(trainers[static_cast<size_t>(trainer)]->wait(its).code, GRADLANE_OK);
  }
}

TEST(Stack, ADaemonThatIsKilledIsNamed) {
  Stack stack;
  auto trainers = all_trainers(stack);
  std::vector<gradlane_request> requests;
  for (const auto& it : trainers) requests.push_back(it->barrier());
  for (unsigned rank = 0; rank < stack.world(); ++rank)
    EXPECT_EQ(trainers[rank]->wait(requests[rank]).code, GRADLANE_OK);
  const Nanos begin = stack.now();
  stack.kill(2);
  requests.clear();
  for (const auto& it : trainers) requests.push_back(it->barrier());
  for (unsigned rank = 0; rank < stack.world(); ++rank) {
    const Outcome ended = trainers[rank]->wait(requests[rank]);
    EXPECT_EQ(ended.code, rank == 2 ? GRADLANE_DAEMON_GONE : GRADLANE_FAILED);
    EXPECT_THAT(ended.text, HasSubstr(rank == 2 ? "has ended" : "rank 2"));
    EXPECT_LT(ended.at, begin + 2 * kSecond);
  }
}

}  // namespace
}  // namespace gradlane::test::stack_test
