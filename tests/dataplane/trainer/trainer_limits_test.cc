// trainer_limits_test.cc - operations with their own timeouts, exact ones, cancelled ones, and parts of ranks' blocks
#include <gtest/gtest.h>

#include <random>

#include "tests/dataplane/trainer/trainer_values.h"

namespace gradlane::test::trainer_limits_test {
namespace {

// The daemons' own limit is 200 ms of virtual time.
constexpr Task kTask{.count = 5000};

gl_submission limited(const Task& task, uint32_t timeout_ms) {
  gl_submission it = task.submission();
  it.timeout_ms = timeout_ms;
  return it;
}

class Limits : public testing::TestWithParam<unsigned> {};  // lanes
INSTANTIATE_TEST_SUITE_P(Lanes, Limits, testing::Values(1, 2));

TEST_P(Limits, LongerThanTheDaemons) {
  Trainers trainers({.nodes = 2, .lanes = GetParam()});
  trainers.run(kTask);
  fill(kTask, 0, 2, trainers[0].segment(0));
  const uint64_t early = trainers[0].submit(limited(kTask, 60'000));
  trainers.world.run_for(2 * kSecond);
  EXPECT_FALSE(trainers[0].over(early).has_value());
  const auto ends = trainers.outcomes_of({early, trainers.submit(1, kTask)});
  for (unsigned rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ends[rank].failed, 0U) << ends[rank].text;
    EXPECT_TRUE(right(kTask, rank, 2, trainers[rank].segment(0)));
  }
}

TEST_P(Limits, ShorterThanTheDaemons) {
  Trainers trainers({.nodes = 2, .lanes = GetParam()});
  trainers.run(kTask);
  const Nanos began = trainers.world.now();
  const uint64_t early = trainers[0].submit(limited(kTask, 5));
  ASSERT_TRUE(trainers.world.run_until([&] { return trainers[0].over(early).has_value(); }));
  EXPECT_GE(trainers.world.now() - began, 5 * kMillisecond);
  EXPECT_LT(trainers.world.now() - began, 10 * kMillisecond);
  EXPECT_NE(trainers[0].over(early)->text.find("took too long: it was waiting for rank 1"), std::string::npos);
  // A rank that submits later gets the error, too.
  const uint64_t late = trainers.submit(1, kTask);
  ASSERT_TRUE(trainers.world.run_until([&] { return trainers[1].over(late).has_value(); }, 10 * kMillisecond));
  EXPECT_NE(trainers[1].over(late)->failed, 0U);
  for (unsigned rank = 0; rank < 2; ++rank) trainers[rank].resume();
  trainers.world.run_for(kMillisecond);
  trainers.run(kTask);
}

TEST_P(Limits, OfBarriers) {
  Trainers trainers({.nodes = 3, .lanes = GetParam()});
  trainers.run(kTask);
  const Task barrier{.kind = OpKind::kBarrier};
  const Nanos began = trainers.world.now();
  const uint64_t mine = trainers[1].submit(limited(barrier, 20));
  ASSERT_TRUE(trainers.world.run_until([&] { return trainers[1].over(mine).has_value(); }));
  EXPECT_GE(trainers.world.now() - began, 20 * kMillisecond);
  EXPECT_LT(trainers.world.now() - began, 40 * kMillisecond);
}

// Trainers of a node wait for one another for the shortest of their timeouts.
TEST_P(Limits, AmongTrainersOfANode) {
  Trainers trainers({.nodes = 2, .lanes = GetParam(), .trainers = 2});
  trainers.run(kTask);
  for (unsigned rank = 0; rank < 4; ++rank) fill(kTask, rank, 4, trainers[rank].segment(0));
  std::vector<uint64_t> cookies(4);
  for (const unsigned rank : {0U, 2U, 3U}) cookies[rank] = trainers[rank].submit(limited(kTask, 5000));
  trainers.world.run_for(kSecond);
  EXPECT_FALSE(trainers[0].over(cookies[0]).has_value());
  cookies[1] = trainers[1].submit(limited(kTask, 5000));
  for (const Outcome& end : trainers.outcomes_of(cookies)) EXPECT_EQ(end.failed, 0U) << end.text;

  for (const unsigned rank : {0U, 2U, 3U}) cookies[rank] = trainers[rank].submit(limited(kTask, rank == 0 ? 5 : 5000));
  trainers.world.run_for(20 * kMillisecond);
  for (const unsigned rank : {0U, 2U, 3U}) {
    ASSERT_TRUE(trainers[rank].over(cookies[rank]).has_value()) << rank;
    EXPECT_NE(trainers[rank].over(cookies[rank])->failed, 0U);
  }
}

// ---- Exact

TEST(Exact, NothingIsRounded) {
  constexpr size_t kCount = 40'000;
  Trainers trainers({.nodes = 3, .lanes = 2, .codec = "fixed:7"});
  std::mt19937 random(3);
  std::normal_distribution<float> any(0, 1e-4F);
  for (const OpKind kind : {OpKind::kBroadcast, OpKind::kAllGather, OpKind::kAllReduce}) {
    const size_t count = kind == OpKind::kAllGather ? kCount / 3 : kCount;
    gl_submission submission = submission_of(kind, ElementType::kFloat32, count);
    submission.flags = GL_FLAG_EXACT;
    if (kind == OpKind::kBroadcast) submission.root = 1;
    std::vector<std::vector<float>> data(3, std::vector<float>(kCount));
    std::vector<uint64_t> cookies;
    for (unsigned rank = 0; rank < 3; ++rank) {
      for (float& value : data[rank]) value = any(random);
      std::memcpy(trainers[rank].segment(0), data[rank].data(), kCount * sizeof(float));
      cookies.push_back(trainers[rank].submit(submission));
    }
    for (const Outcome& end : trainers.outcomes_of(cookies)) ASSERT_EQ(end.failed, 0U) << end.text;
    std::vector<float> result(kCount);
    for (unsigned rank = 0; rank < 3; ++rank) {
      std::memcpy(result.data(), trainers[rank].segment(0), kCount * sizeof(float));
      for (size_t i = 0; i < 3 * (kCount / 3); ++i) {
        const double sum =
            static_cast<double>(data[0][i]) + static_cast<double>(data[1][i]) + static_cast<double>(data[2][i]);
        if (kind == OpKind::kBroadcast) {
          ASSERT_EQ(result[i], data[1][i]);
        } else if (kind == OpKind::kAllGather) {
          ASSERT_EQ(result[i], data[i / count][i]);
        } else {
          ASSERT_NEAR(static_cast<double>(result[i]), sum, 1e-10);
        }
      }
    }
  }
}

// ---- Given up before they begin

TEST(GivenUp, FailsEverywhereAndKeepsItsNumber) {
  Trainers trainers({.nodes = 3, .lanes = 2});
  trainers.run(kTask);
  gl_submission given_up = kTask.submission();
  given_up.flags |= GL_FLAG_CANCELLED;
  const std::vector<uint64_t> cookies = {trainers.submit(0, kTask), trainers[1].submit(given_up),
                                         trainers.submit(2, kTask)};
  for (const Outcome& end : trainers.outcomes_of(cookies, 50 * kMillisecond)) {
    EXPECT_NE(end.failed, 0U);
    EXPECT_NE(end.text.find("cancelled on rank 1"), std::string::npos) << end.text;
  }
  trainers.run(kTask);
}

TEST(GivenUp, ByOneTrainerOfANode) {
  Trainers trainers({.nodes = 2, .trainers = 2});
  trainers.run(kTask);
  gl_submission given_up = kTask.submission();
  given_up.flags |= GL_FLAG_CANCELLED;
  const std::vector<uint64_t> cookies = {trainers.submit(0, kTask), trainers[1].submit(given_up),
                                         trainers.submit(2, kTask), trainers.submit(3, kTask)};
  for (const Outcome& end : trainers.outcomes_of(cookies, 50 * kMillisecond)) EXPECT_NE(end.failed, 0U);
  trainers.run(kTask);
}

// ---- Parts of blocks: elements [first, first + count) of each rank's block of kBlock

constexpr size_t kBlock = 30'000;

class Pitch : public testing::TestWithParam<std::tuple<unsigned, OpKind>> {};  // lanes
INSTANTIATE_TEST_SUITE_P(Kinds, Pitch,
                         testing::Combine(testing::Values(1, 2),
                                          testing::Values(OpKind::kReduceScatter, OpKind::kAllGather)));

TEST_P(Pitch, PartsMakeTheWhole) {
  const auto [lanes, kind] = GetParam();
  Trainers trainers({.nodes = 3, .lanes = lanes});
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBytes}) {
    const Task whole{.kind = kind, .type = type, .count = kBlock};
    std::vector<std::vector<uint64_t>> parts;
    for (unsigned rank = 0; rank < 3; ++rank) fill(whole, rank, 3, trainers[rank].segment(0));
    for (const auto& [first, count] : {std::pair{size_t{0}, size_t{20'000}}, {20'000, 9'999}, {29'999, 1}}) {
      gl_submission part = submission_of(kind, type, count, first * element_bytes(type));
      part.pitch = kBlock;
      auto& cookies = parts.emplace_back();
      for (unsigned rank = 0; rank < 3; ++rank) cookies.push_back(trainers[rank].submit(part));
    }
    for (const auto& cookies : parts) {
      for (const Outcome& end : trainers.outcomes_of(cookies)) ASSERT_EQ(end.failed, 0U) << end.text;
    }
    for (unsigned rank = 0; rank < 3; ++rank) EXPECT_TRUE(right(whole, rank, 3, trainers[rank].segment(0)));
  }
}

}  // namespace
}  // namespace gradlane::test::trainer_limits_test
