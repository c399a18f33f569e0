// trainer_test.cc - operations of trainers on one lane and on several: results, residuals and failures
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>

#include "dataplane/trainer/share.h"
#include "tests/dataplane/trainer/trainer_values.h"

namespace gradlane::test::trainer_test {
namespace {

class Kinds : public testing::TestWithParam<std::tuple<unsigned, unsigned>> {};  // ranks, lanes

TEST_P(Kinds, AllOfThemAndAllTypes) {
  const auto [ranks, lanes] = GetParam();
  Trainers trainers({.nodes = ranks, .lanes = lanes});
  for (const ElementType type : kTypes) {
    // A tensor of a few bytes is the share of one lane. A longer tensor has a share for each lane.
    for (const size_t count : {size_t{1}, size_t{1003}, most_bytes(type, 80'000) / element_bytes(type)}) {
      for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllGather, OpKind::kBroadcast}) {
        trainers.run(
            {.kind = kind, .type = type, .count = count, .root = count % 2 == 0 ? 0 : ranks - 1, .offset = count});
        if (!reduces(kind)) continue;
        for (const Reduction reduction : {Reduction::kAverage, Reduction::kMin, Reduction::kMax}) {
          if (reduction == Reduction::kAverage && !is_floating(type)) continue;
          trainers.run({.kind = kind, .type = type, .count = count, .reduction = reduction, .root = 0, .offset = 1});
        }
      }
    }
  }
  EXPECT_TRUE(trainers.world.idle());
}

TEST_P(Kinds, ThoseOfDirect) {
  const auto [ranks, lanes] = GetParam();
  Trainers trainers({.nodes = ranks, .lanes = lanes, .strategies = find_strategies("ring,direct")});
  for (const ElementType type : kTypes) {
    for (const size_t count : {size_t{1}, size_t{1003}, most_bytes(type, 80'000) / element_bytes(type)}) {
      for (const OpKind kind : {OpKind::kReduce, OpKind::kGather, OpKind::kScatter}) {
        trainers.run(
            {.kind = kind, .type = type, .count = count, .root = count % 2 == 0 ? 0 : ranks - 1, .offset = count});
      }
      for (const Reduction reduction : {Reduction::kAverage, Reduction::kMin, Reduction::kMax}) {
        if (reduction == Reduction::kAverage && !is_floating(type)) continue;
        trainers.run({.kind = OpKind::kReduce, .type = type, .count = count, .reduction = reduction, .offset = 1});
      }
      Task task{.kind = OpKind::kAllToAll, .type = type, .count = count, .offset = 3};
      task.out = task.offset + task.bytes(ranks) + 5;
      for (const Outcome& end : trainers.outcomes(task)) EXPECT_EQ(end.failed, 0U) << end.text;
      for (unsigned rank = 0; rank < ranks; ++rank) {
        EXPECT_TRUE(right(task, rank, ranks, trainers[rank].segment(0) + task.out));
        task.kind = OpKind::kGather;  // a gather leaves data unchanged on all ranks but the root
        task.root = rank == 0 ? ranks - 1 : 0;
        if (ranks > 1) {
          EXPECT_TRUE(right(task, rank, ranks, trainers[rank].segment(0) + task.offset));
        }
        task.kind = OpKind::kAllToAll;
      }
    }
  }
  EXPECT_TRUE(trainers.world.idle());
}

// The node's codec is fixed:10. An all-to-all goes through a codec only if it names one.
TEST(Trainer, AllToAllThroughACodec) {
  Trainers trainers({.nodes = 2, .lanes = 2, .strategies = find_strategies("direct")});
  for (const bool named : {false, true}) {
    gl_submission submission = submission_of(OpKind::kAllToAll, ElementType::kFloat32, 1);
    submission.residual_offset = 100;
    submission.flags = named ? GL_FLAG_CODEC : 0;
    submission.codec = static_cast<uint8_t>(CodecId::kFixed);
    submission.codec_arguments = 10;
    std::vector<uint64_t> cookies;
    const float values[] = {0x1p-20F, 0x1p-21F};
    for (unsigned rank = 0; rank < 2; ++rank) {
      std::memcpy(trainers[rank].segment(0), values, sizeof(values));
      cookies.push_back(trainers[rank].submit(submission));
    }
    for (const Outcome& end : trainers.outcomes_of(cookies)) EXPECT_EQ(end.failed, 0U) << end.text;
    for (unsigned rank = 0; rank < 2; ++rank) {
      float out[2];
      std::memcpy(out, trainers[rank].segment(0) + 100, sizeof(out));
      EXPECT_EQ(out[rank], values[rank]);
      EXPECT_EQ(out[1 - rank], named ? 0 : values[rank]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Kinds, testing::Combine(testing::Values(1, 2, 3, 4), testing::Values(1, 3)));

TEST(Trainer, EmptyTensorsAndBarriersNeedNoSegment) {
  TrainerWorld world({.nodes = 3, .lanes = 3});
  std::vector<std::unique_ptr<Trainer>> all;
  for (unsigned rank = 0; rank < 3; ++rank) {
    all.push_back(std::make_unique<Trainer>(world, rank));
    all.back()->attach();
  }
  for (const OpKind kind :
       {OpKind::kBarrier, OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllGather, OpKind::kBroadcast}) {
    std::vector<uint64_t> cookies;
    for (const auto& it : all) cookies.push_back(it->submit(submission_of(kind, ElementType::kInt64, 0, 77)));
    for (unsigned rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(world.run_until([&] { return all[rank]->over(cookies[rank]).has_value(); })) << op_name(kind);
      EXPECT_EQ(all[rank]->over(cookies[rank])->failed, 0U);
    }
  }
}

TEST(Trainer, BarrierWaitsForAll) {
  Trainers trainers({.nodes = 3, .lanes = 2});
  const Task barrier{.kind = OpKind::kBarrier};
  std::vector<uint64_t> cookies = {trainers.submit(0, barrier), trainers.submit(1, barrier)};
  trainers.world.run_for(20 * kMillisecond);
  EXPECT_FALSE(trainers[0].over(cookies[0]) || trainers[1].over(cookies[1]));
  cookies.push_back(trainers.submit(2, barrier));
  for (const Outcome& end : trainers.outcomes_of(cookies)) EXPECT_EQ(end.failed, 0U);
}

// Many operations are in flight, small and large, more than the exchange takes at a time. They end in any order.
TEST(Trainer, ManyAtOnce) {
  Trainers trainers({.nodes = 3, .lanes = 3, .operations = 4});
  std::vector<Task> tasks;
  std::vector<std::vector<uint64_t>> cookies;
  for (size_t i = 0; i < GL_SLOTS; ++i) {
    tasks.push_back({.kind = i % 3 == 0 ? OpKind::kBroadcast : OpKind::kAllReduce,
                     .type = kTypes[i % std::size(kTypes)],
                     .count = i % 7 == 0 ? size_t{1500} : i,
                     .root = static_cast<unsigned>(i % 3 == 0 ? i / 3 % 3 : 0),
                     .offset = i * 12'000});
    auto& row = cookies.emplace_back();
    for (unsigned rank = 0; rank < 3; ++rank) row.push_back(trainers.submit(rank, tasks[i]));
  }
  for (size_t i = 0; i < GL_SLOTS; ++i) {
    const auto ends = trainers.outcomes_of(cookies[i]);
    for (unsigned rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(ends[rank].failed, 0U) << ends[rank].text;
      EXPECT_TRUE(right(tasks[i], rank, 3, trainers[rank].segment(0) + tasks[i].offset));
    }
  }
}

// Ring counts wrap, because there are more operations than slots.
TEST(Trainer, GoesOnForLong) {
  Trainers trainers({.nodes = 2, .lanes = 2});
  for (int i = 0; i < 700; ++i) trainers.run({.count = 5, .offset = 4});
  EXPECT_GT(trainers[0].lane(0).data_packets, 700U);
  EXPECT_GT(trainers[0].lane(0).data_bytes, 700U);
}

// The codec of the submission is used, not that of the node. Raw keeps values that fixed:10 would round.
TEST(Trainer, NamesItsCodec) {
  Trainers trainers({.nodes = 2, .lanes = 2});
  gl_submission submission = submission_of(OpKind::kAllReduce, ElementType::kFloat32, 1);
  submission.flags = GL_FLAG_CODEC;
  submission.codec = static_cast<uint8_t>(CodecId::kRaw);
  for (const float unit : {0x1p-20F, 0.0F}) {
    std::vector<uint64_t> cookies;
    for (unsigned rank = 0; rank < 2; ++rank) {
      const float value = 0x1p-20F;
      std::memcpy(trainers[rank].segment(0), &value, sizeof(value));
      cookies.push_back(trainers[rank].submit(submission));
    }
    for (const Outcome& end : trainers.outcomes_of(cookies)) EXPECT_EQ(end.failed, 0U) << end.text;
    float sum = 0;
    std::memcpy(&sum, trainers[1].segment(0), sizeof(sum));
    EXPECT_EQ(sum, 2 * unit);
    submission.flags = 0;
  }
}

// The result is the sum of the rounded elements. Each rank keeps the rounding errors in its residual, whichever lane
// has the element.
TEST(Trainer, ErrorFeedbackAcrossLanes) {
  constexpr unsigned kRanks = 3;
  constexpr size_t kCount = 50'021;
  const Codec codec = find_codec("fixed:10");
  for (const unsigned lanes : {1U, 2U, 3U}) {
    Trainers trainers({.nodes = kRanks, .lanes = lanes});
    std::mt19937 random(lanes);
    std::uniform_real_distribution<float> any(-1, 1);
    std::vector<std::vector<float>> residuals(kRanks, std::vector<float>(kCount, 0.0F));
    for (unsigned rank = 0; rank < kRanks; ++rank) trainers[rank].add_segment(7, (kCount + 4) * sizeof(float));
    for (int round = 0; round < 3; ++round) {
      std::vector<float> sums(kCount, 0.0F);
      std::vector<uint64_t> cookies;
      for (unsigned rank = 0; rank < kRanks; ++rank) {
        for (size_t i = 0; i < kCount; ++i) {
          const float value = any(random);
          std::memcpy(trainers[rank].segment(0) + i * sizeof(float), &value, sizeof(float));
          const float sum = value + residuals[rank][i];
          const float rounded = contribution(codec, sum);
          sums[i] += rounded;
          residuals[rank][i] = sum - rounded;
        }
        gl_submission submission = submission_of(OpKind::kAllReduce, ElementType::kFloat32, kCount);
        submission.flags = GL_FLAG_RESIDUAL;
        submission.residual_segment = 7;
        submission.residual_offset = 16;
        cookies.push_back(trainers[rank].submit(submission));
      }
      for (const Outcome& end : trainers.outcomes_of(cookies)) {
        ASSERT_EQ(end.failed, 0U) << end.text;
        EXPECT_FALSE(end.residual_cleared);
      }
      for (unsigned rank = 0; rank < kRanks; ++rank) {
        EXPECT_EQ(std::memcmp(trainers[rank].segment(0), sums.data(), kCount * sizeof(float)), 0);
        EXPECT_EQ(std::memcmp(trainers[rank].segment(7) + 16, residuals[rank].data(), kCount * sizeof(float)), 0);
      }
    }
  }
}

TEST(Trainer, FailureClearsTheResidual) {
  Trainers trainers({.nodes = 2});
  gl_submission submission = submission_of(OpKind::kAllReduce, ElementType::kFloat32, 64);
  submission.flags = GL_FLAG_RESIDUAL;
  submission.residual_offset = 4096;
  const std::vector<float> ones(64, 1.0F);
  for (unsigned rank = 0; rank < 2; ++rank) {
    std::memcpy(trainers[rank].segment(0) + 4096, ones.data(), 256);
  }
  const uint64_t cookie = trainers[0].submit(submission);
  trainers.world.run_for(20 * kMillisecond);
  trainers[0].cancel(cookie);
  const uint64_t other = trainers[1].submit(submission);
  const auto ends = trainers.outcomes_of({cookie, other});
  EXPECT_EQ(ends[0].failed, 1U);
  EXPECT_EQ(ends[1].failed, 1U);
  EXPECT_TRUE(ends[0].residual_cleared);
  const std::vector<float> zeros(64, 0.0F);
  EXPECT_EQ(std::memcmp(trainers[0].segment(0) + 4096, zeros.data(), 256), 0);
}

TEST(Trainer, DifferentOperationsFailEverywhere) {
  Trainers trainers({.nodes = 3, .lanes = 2});
  std::vector<uint64_t> cookies;
  for (unsigned rank = 0; rank < 3; ++rank) cookies.push_back(trainers.submit(rank, {.count = rank == 1 ? 65U : 64U}));
  for (const Outcome& end : trainers.outcomes_of(cookies)) {
    EXPECT_EQ(end.failed, 2U);
    EXPECT_NE(end.text.find("count"), std::string::npos) << end.text;
    EXPECT_NE(end.text.find("64"), std::string::npos) << end.text;
    EXPECT_NE(end.text.find("65"), std::string::npos) << end.text;
  }
  trainers.run({.count = 64});
}

TEST(Trainer, WakesUpWhoWaits) {
  Trainers trainers({.nodes = 1});
  uint8_t ring;
  trainers.run({.count = 3});
  EXPECT_LT(recv(trainers[0].bell(), &ring, 1, MSG_DONTWAIT), 0) << "nobody waited";
  trainers[0].control().waiting = 1;
  trainers.run({.count = 3});
  EXPECT_EQ(recv(trainers[0].bell(), &ring, 1, MSG_DONTWAIT), 1);
  EXPECT_LT(recv(trainers[0].bell(), &ring, 1, MSG_DONTWAIT), 0) << "once";
}

}  // namespace
}  // namespace gradlane::test::trainer_test
