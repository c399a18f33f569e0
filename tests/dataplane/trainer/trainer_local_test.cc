// trainer_local_test.cc - several trainers of a node that are summed up before the ring
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "tests/dataplane/trainer/trainer_values.h"
#include "tests/thorough.h"

namespace gradlane::test::trainer_local_test {
namespace {

constexpr Nanos kSoon = 10 * kMillisecond;

class Local : public testing::TestWithParam<std::tuple<unsigned, unsigned, unsigned>> {  // nodes, trainers, lanes
 protected:
  static TrainerConfig config() {
    const auto [nodes, trainers, lanes] = GetParam();
    return {.nodes = nodes, .lanes = lanes, .trainers = trainers};
  }
};

TEST_P(Local, EveryReductionOfEveryType) {
  Trainers trainers(config());
  for (const ElementType type : kTypes) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{1003}, most_bytes(type, 140'000) / element_bytes(type)}) {
      trainers.run({.type = type, .count = count, .offset = count});
      if (is_floating(type)) trainers.run({.type = type, .count = count, .reduction = Reduction::kAverage});
      trainers.run({.type = type, .count = count, .reduction = Reduction::kMin});
      trainers.run({.type = type, .count = count, .reduction = Reduction::kMax});
    }
  }
  EXPECT_TRUE(trainers.world.idle());
}

// Each trainer has a block. Lanes divide the blocks anywhere.
TEST_P(Local, BlocksOfEachTrainer) {
  Trainers trainers(config());
  const size_t ranks = trainers.world.ranks();
  for (const ElementType type : kTypes) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{103}, 300'000 / element_bytes(type) / ranks}) {
      trainers.run({.kind = OpKind::kAllGather, .type = type, .count = count, .offset = 3});
      trainers.run({.kind = OpKind::kReduceScatter, .type = type, .count = count, .offset = 5});
      if (!thorough()) continue;
      trainers.run({.kind = OpKind::kReduceScatter, .type = type, .count = count, .reduction = Reduction::kMax});
      if (!is_floating(type)) continue;
      trainers.run({.kind = OpKind::kReduceScatter, .type = type, .count = count, .reduction = Reduction::kAverage});
    }
  }
  EXPECT_TRUE(trainers.world.idle());
}

// A reduce-scatter gives each trainer the block that an all-reduce with this codec gives. The first trainer of a node
// keeps the residuals.
TEST(LocalTensors, ScatteredSumsAreThoseOfAnAllReduce) {
  constexpr size_t kCount = 5'003;
  constexpr unsigned kRanks = 6;
  for (const char* const codec : {"raw", "fixed:7", "fixed:rel=7"}) {
    Trainers trainers({.nodes = 2, .lanes = 2, .trainers = 3, .codec = codec, .strategies = find_strategies("direct")});
    std::vector<std::vector<uint8_t>> results;
    for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduceScatter}) {
      std::mt19937 random(1);
      std::normal_distribution<float> any(0, 0.1F);
      std::vector<uint64_t> cookies;
      for (unsigned rank = 0; rank < kRanks; ++rank) {
        for (size_t i = 0; i < kCount * kRanks; ++i) {
          const float value = any(random);
          std::memcpy(trainers[rank].segment(0) + i * sizeof(value), &value, sizeof(value));
        }
        const size_t count = kind == OpKind::kAllReduce ? kCount * kRanks : kCount;
        cookies.push_back(trainers[rank].submit(submission_of(kind, ElementType::kFloat32, count)));
      }
      for (const Outcome& end : trainers.outcomes_of(cookies)) EXPECT_EQ(end.failed, 0U) << end.text;
      for (unsigned rank = 0; rank < kRanks; ++rank) {
        const uint8_t* const block = trainers[rank].segment(0) + rank * kCount * sizeof(float);
        results.emplace_back(block, block + kCount * sizeof(float));
      }
    }
    // With two nodes, a sum is the same whichever node adds it.
    for (unsigned rank = 0; rank < kRanks; ++rank) EXPECT_EQ(results[rank], results[kRanks + rank]) << codec;
  }
}

TEST_P(Local, BroadcastsFromEachTrainerAndBarriers) {
  Trainers trainers(config());
  for (unsigned root = 0; root < trainers.world.ranks(); root += thorough() ? 1 : 5) {
    const size_t count = root % 2 == 0 ? 500 : 40'000;
    trainers.run({.kind = OpKind::kBroadcast, .type = kTypes[root % 7], .count = count, .root = root});
    trainers.run({.kind = OpKind::kBarrier});
  }
}

// Trainers are summed up in their order, block by block. A sum that is NaN always has the bits of the same NaN,
// whatever was added.
TEST_P(Local, AddsInTheOrderOfTrainers) {
  const auto [nodes, count, lanes] = GetParam();
  if (nodes != 1) return;  // a ring adds in an order of nodes, which the exchange's tests check
  Trainers trainers({.nodes = 1, .lanes = lanes, .trainers = count, .codec = "raw"});
  constexpr size_t kCount = 50'021;
  std::mt19937 random(3);
  std::vector<std::vector<float>> values(count, std::vector<float>(kCount));
  for (auto& each : values) {
    // of any size, NaN and Inf included
    for (float& it : each) it = std::bit_cast<float>(static_cast<uint32_t>(random()));
  }
  for (const uint32_t flags : {0U, GL_FLAG_AVERAGE}) {
    std::vector<uint64_t> cookies;
    for (unsigned rank = 0; rank < count; ++rank) {
      std::memcpy(trainers[rank].segment(0), values[rank].data(), kCount * sizeof(float));
      gl_submission it = submission_of(OpKind::kAllReduce, ElementType::kFloat32, kCount);
      it.flags = flags;
      cookies.push_back(trainers[rank].submit(it));
    }
    for (const Outcome& end : trainers.outcomes_of(cookies)) EXPECT_EQ(end.failed, 0U) << end.text;
    size_t wrong = 0;
    for (size_t i = 0; i < kCount; ++i) {
      float sum = values[0][i];
      for (unsigned rank = 1; rank < count; ++rank) sum += values[rank][i];
      if (flags != 0) sum /= static_cast<float>(count);
      const uint32_t bits = std::isnan(sum) ? 0x7fc00000U : std::bit_cast<uint32_t>(sum);
      for (unsigned rank = 0; rank < count; ++rank) {
        wrong += std::memcmp(trainers[rank].segment(0) + i * sizeof(bits), &bits, sizeof(bits)) != 0 ? 1 : 0;
      }
    }
    EXPECT_EQ(wrong, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, Local,
                         testing::Values(std::tuple{1, 2, 1}, std::tuple{1, 16, 2}, std::tuple{2, 2, 2},
                                         std::tuple{2, 3, 1}, std::tuple{3, 3, 3},
                                         std::tuple{3, thorough() ? 16 : 4, 1}));

// All ranks have the same bytes, however elements are rounded.
TEST(LocalTensors, CopiesAreIdentical) {
  constexpr size_t kCount = 30'011;
  for (const char* const codec : {"raw", "fixed:7", "inceptionn:10"}) {
    Trainers trainers({.nodes = 3, .lanes = 2, .trainers = 3, .codec = codec});
    std::mt19937 random(1);
    std::normal_distribution<float> any(0, 0.1F);
    std::vector<uint64_t> cookies;
    for (unsigned rank = 0; rank < 9; ++rank) {
      for (size_t i = 0; i < kCount; ++i) {
        const float value = any(random);
        std::memcpy(trainers[rank].segment(0) + i * sizeof(value), &value, sizeof(value));
      }
      cookies.push_back(trainers[rank].submit(submission_of(OpKind::kAllReduce, ElementType::kFloat32, kCount)));
    }
    for (const Outcome& end : trainers.outcomes_of(cookies)) EXPECT_EQ(end.failed, 0U) << end.text;
    for (unsigned rank = 1; rank < 9; ++rank) {
      EXPECT_EQ(std::memcmp(trainers[rank].segment(0), trainers[0].segment(0), kCount * sizeof(float)), 0);
    }
  }
}

// ---- Trainers of a node that do not agree

struct Difference {
  const char* field;
  gl_submission odd;
  std::string one, other;  // the error names both values
};

std::vector<Difference> differences(const gl_submission& good) {
  std::vector<Difference> all;
  const auto add = [&](const char* field, const char* one, const char* other, auto change) {
    all.push_back({field, good, one, other});
    change(all.back().odd);
  };
  add("kind", "all-reduce", "broadcast", [](gl_submission& it) { it.kind = GL_BROADCAST; });
  add("kind", "all-reduce", "barrier", [](gl_submission& it) { it.kind = GL_BARRIER; });
  add("type", "float32", "int32", [](gl_submission& it) { it.type = GRADLANE_INT32; });
  add("count", "50000", "49999", [](gl_submission& it) { it.count = 49'999; });
  add("count", "50000", "0", [](gl_submission& it) { it.count = 0; });
  add("reduction", "sum", "average", [](gl_submission& it) { it.flags = GL_FLAG_AVERAGE; });
  add("reduction", "sum", "maximum", [](gl_submission& it) { it.flags = GL_FLAG_MAX; });
  add("tag", "7", "8", [](gl_submission& it) { it.tag = 8; });
  add("codec", "fixed:10", "raw", [](gl_submission& it) { it.flags = GL_FLAG_CODEC; });
  return all;
}

TEST(LocalMismatch, EveryTrainerHearsBothValuesAndOthersAnError) {
  for (const unsigned odd_one : {0U, 1U, 2U}) {
    Trainers trainers({.nodes = 2, .lanes = 2, .trainers = 3});
    gl_submission good = submission_of(OpKind::kAllReduce, ElementType::kFloat32, 50'000);
    good.tag = 7;
    for (const Difference& it : differences(good)) {
      std::vector<uint64_t> cookies;
      for (unsigned rank = 0; rank < 6; ++rank) {
        cookies.push_back(trainers[rank].submit(rank == odd_one ? it.odd : good));
        if (odd_one == 0) trainers.world.run_for(10 * kMicrosecond);
      }
      const auto ends = trainers.outcomes_of(cookies, kSoon);
      for (unsigned rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(ends[rank].failed, 2U);
        for (const std::string& word : {std::string(it.field), it.one, it.other}) {
          EXPECT_NE(ends[rank].text.find(word), std::string::npos) << word << " in: " << ends[rank].text;
        }
      }
      for (unsigned rank = 3; rank < 6; ++rank) {
        EXPECT_EQ(ends[rank].failed, 2U);
        EXPECT_NE(ends[rank].text.find("rank 0"), std::string::npos) << ends[rank].text;
      }
      trainers.run({.count = 50'000});
    }
  }
}

TEST(LocalMismatch, RootsOfABroadcast) {
  Trainers trainers({.nodes = 2, .trainers = 2});
  for (const unsigned first : {0U, 1U, 2U, 3U}) {
    std::vector<uint64_t> cookies;
    for (unsigned rank = 0; rank < 4; ++rank) {
      gl_submission it = submission_of(OpKind::kBroadcast, ElementType::kInt64, rank == 0 ? 0 : 100);
      it.root = rank == 0 ? first : (first + 1) % 4;
      cookies.push_back(trainers[rank].submit(it));
    }
    for (const Outcome& end : trainers.outcomes_of(cookies, kSoon)) EXPECT_EQ(end.failed, 1U);
    trainers.run({.kind = OpKind::kBroadcast, .count = 1000, .root = first});
  }
}

// ---- Trainers that do not submit

TEST(LocalMissing, OneThatNeverSubmits) {
  Trainers trainers({.nodes = 2, .lanes = 2, .trainers = 3});
  const Task task{.count = 20'000};
  for (const unsigned late : {0U, 2U}) {
    trainers.run(task);
    std::vector<uint64_t> cookies(6);
    for (unsigned rank = 0; rank < 6; ++rank) {
      if (rank != late) cookies[rank] = trainers.submit(rank, task);
    }
    const Nanos timeout = trainers.world.config().operation_timeout;
    trainers.world.run_for(timeout / 2);
    for (unsigned rank = 0; rank < 6; ++rank) {
      if (rank != late) {
        EXPECT_FALSE(trainers[rank].over(cookies[rank])) << "rank " << rank;
      }
    }
    trainers.world.run_for(timeout);
    for (unsigned rank = 0; rank < 6; ++rank) {
      if (rank == late) continue;
      const auto end = trainers[rank].over(cookies[rank]);
      ASSERT_TRUE(end) << "rank " << rank;
      EXPECT_EQ(end->failed, 2U);
      EXPECT_NE(end->text.find(rank < 3 ? "waited" : "rank"), std::string::npos) << end->text;
    }
    // The late trainer's operation has failed already. It gets the error.
    cookies[late] = trainers.submit(late, task);
    ASSERT_TRUE(trainers.world.run_until([&] { return trainers[late].over(cookies[late]).has_value(); }, kSoon));
    EXPECT_EQ(trainers[late].over(cookies[late])->failed, 2U);
  }
  trainers.run(task);
}

TEST(LocalMissing, CancelAndFreeDoNotWaitForTheOthers) {
  Trainers trainers({.nodes = 2, .lanes = 2, .trainers = 2});
  const Task task{.count = 20'000};
  for (const bool frees : {false, true}) {
    std::vector<uint64_t> cookies(4);
    trainers[1].add_segment(1, 80'000);
    gl_submission submission = task.submission();
    submission.segment = 1;
    cookies[1] = trainers[1].submit(submission);
    trainers.world.run_for(kMillisecond);
    const Nanos before = trainers.world.now();
    if (frees) {
      trainers[1].remove_segment(1);
      EXPECT_LT(trainers.world.now() - before, kSoon);
    } else {
      trainers[1].cancel(cookies[1]);
    }
    ASSERT_TRUE(trainers.world.run_until([&] { return trainers[1].over(cookies[1]).has_value(); }, kSoon));
    for (const unsigned rank : {0U, 2U, 3U}) cookies[rank] = trainers.submit(rank, task);
    for (const Outcome& end : trainers.outcomes_of(cookies, kSoon)) EXPECT_EQ(end.failed, 2U);
    if (!frees) trainers[1].remove_segment(1);
    trainers.run(task);
  }
}

TEST(LocalMissing, OneThatHasGone) {
  Trainers trainers({.nodes = 2, .lanes = 2, .trainers = 3});
  const Task task{.count = 20'000};
  for (const bool waits : {true, false}) {  // whether the others submit before trainer 1 detaches
    trainers.run(task);
    std::vector<uint64_t> cookies(6);
    if (!waits) trainers[1].detach();
    for (const unsigned rank : {0U, 2U, 3U, 4U, 5U}) cookies[rank] = trainers.submit(rank, task);
    trainers.world.run_for(20 * kMicrosecond);
    if (waits) trainers[1].detach();
    for (const unsigned rank : {0U, 2U, 3U, 4U, 5U}) {
      ASSERT_TRUE(trainers.world.run_until([&] { return trainers[rank].over(cookies[rank]).has_value(); }, kSoon));
      const Outcome end = *trainers[rank].over(cookies[rank]);
      EXPECT_EQ(end.failed, 2U);
      EXPECT_NE(end.text.find(rank < 3 ? "rank 1, a trainer of this node, has left" : "rank 0"), std::string::npos)
          << end.text;
    }
    trainers.come(1);
  }
  trainers.run(task);
}

// Summing and copying take many polls. A trainer's memory is left alone after `done`, whatever happens between the
// polls.
TEST(LocalMissing, OneThatGoesAtAnyTime) {
  Trainers trainers({.nodes = 2, .lanes = 1, .trainers = 3});
  const Task task{.count = 200'000};
  for (Nanos after = 0; after < 60 * kMicrosecond; after += thorough() ? kMicrosecond : 5 * kMicrosecond) {
    const unsigned who = static_cast<unsigned>(after / kMicrosecond % 3);
    std::vector<uint64_t> cookies;
    for (unsigned rank = 0; rank < 6; ++rank) cookies.push_back(trainers.submit(rank, task));
    trainers.world.run_for(after < 30 * kMicrosecond ? after : after * 20);
    trainers[who].detach();
    for (unsigned rank = 0; rank < 6; ++rank) {
      if (rank == who) continue;
      ASSERT_TRUE(trainers.world.run_until([&] { return trainers[rank].over(cookies[rank]).has_value(); }, kSecond));
    }
    trainers.come(who);
  }
  trainers.run(task);
}

}  // namespace
}  // namespace gradlane::test::trainer_local_test
