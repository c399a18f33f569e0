// trainer_strategies_test.cc - operations of trainers by each strategy that their daemons allow
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "collectives/strategy/codec_needs.h"
#include "tests/dataplane/trainer/trainer_values.h"

namespace gradlane::test::trainer_strategies_test {
namespace {

constexpr const char* kNames[] = {"", "ring", "direct", "rings:2", "aggregator:1"};

TrainerConfig config(const std::string& allowed, unsigned trainers = 1) {
  return {.nodes = 4, .lanes = 2, .trainers = trainers, .strategies = find_strategies(allowed)};
}

class Strategies : public testing::TestWithParam<unsigned> {};  // trainers of each node

TEST_P(Strategies, EveryReductionByEach) {
  Trainers trainers(config("direct,ring,rings:2,aggregator:1", GetParam()));
  for (const char* const strategy : kNames) {
    for (const ElementType type : kTypes) {
      for (const size_t count : {size_t{0}, size_t{3}, size_t{5003}}) {
        trainers.run({.type = type, .count = count, .strategy = strategy});
        for (const Reduction reduction : {Reduction::kAverage, Reduction::kMin, Reduction::kMax}) {
          if (reduction == Reduction::kAverage && !is_floating(type)) continue;
          trainers.run({.type = type, .count = count, .reduction = reduction, .strategy = strategy});
        }
      }
    }
    trainers.run({.kind = OpKind::kBarrier, .strategy = strategy});
  }
  EXPECT_TRUE(trainers.world.idle());
}

INSTANTIATE_TEST_SUITE_P(Trainers, Strategies, testing::Values(1, 2));

TEST(StrategyKinds, ByThoseThatCan) {
  Trainers trainers(config("aggregator:2,direct"));
  for (const char* const strategy : {"direct", "ring", ""}) {  // "": the ring does what an aggregator cannot do
    for (const OpKind kind : {OpKind::kReduceScatter, OpKind::kAllGather, OpKind::kBroadcast}) {
      trainers.run({.kind = kind, .count = 2003, .root = kind == OpKind::kBroadcast ? 3U : 0U, .strategy = strategy});
    }
  }
}

// Data are sent to the aggregator, and results are sent back. Each direction has its own codec and rounding.
TEST(StrategyCodecs, OneForEachWay) {
  for (const bool back : {false, true}) {
    Trainers trainers({.nodes = 2, .codec = "raw", .strategies = find_strategies("aggregator:0")});
    gl_submission submission = submission_of(OpKind::kAllReduce, ElementType::kFloat32, 1);
    submission.flags = back ? GL_FLAG_BACK : GL_FLAG_CODEC;
    (back ? submission.back_codec : submission.codec) = static_cast<uint8_t>(CodecId::kFixed);
    (back ? submission.back_arguments : submission.codec_arguments) = 10;
    std::vector<uint64_t> cookies;
    for (unsigned rank = 0; rank < 2; ++rank) {
      const float value = 0.75F * 0x1p-10F;  // fixed:10 has steps of 2^-9
      std::memcpy(trainers[rank].segment(0), &value, sizeof(value));
      cookies.push_back(trainers[rank].submit(submission));
    }
    for (const Outcome& end : trainers.outcomes_of(cookies)) EXPECT_EQ(end.failed, 0U) << end.text;
    for (unsigned rank = 0; rank < 2; ++rank) {
      float sum = -1;
      std::memcpy(&sum, trainers[rank].segment(0), sizeof(sum));
      // Each value has 0.375 steps. If the codec is for the data, both values are rounded to 0. If it is for the
      // results, the sum of 0.75 steps is rounded to 1.
      EXPECT_EQ(sum, back ? 0x1p-9F : 0.0F) << "rank " << rank;
    }
  }
}

TEST(StrategyMismatch, BothAreNamed) {
  Trainers trainers(config("ring,direct"));
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kBarrier}) {
    const size_t count = kind == OpKind::kBarrier ? 0 : 50'000;
    std::vector<uint64_t> cookies;
    for (unsigned rank = 0; rank < 4; ++rank) {
      cookies.push_back(
          trainers.submit(rank, {.kind = kind, .count = count, .strategy = rank == 2 ? "direct" : "ring"}));
    }
    for (const Outcome& end : trainers.outcomes_of(cookies)) {
      EXPECT_EQ(end.failed, 2U) << op_name(kind);
      for (const char* const word : {"strategy: ", "ring", "direct"}) {
        EXPECT_NE(end.text.find(word), std::string::npos) << word << " in: " << end.text;
      }
    }
    trainers.run({.count = 100});
  }
}

// Some codecs do not work with every strategy. A trainer that names such a codec with the ring gets the reason.
TEST(StrategyCodecs, WhereTheyCanGo) {
  for (const CodecRow& row : codec_table()) {
    const Codec codec = find_codec(row.example);
    if (!needs_owners(row) && !needs_links(row)) continue;
    Trainers trainers({.nodes = 4, .strategies = find_strategies("ring")});  // with two nodes, the ring would link all
    gl_submission submission = submission_of(OpKind::kAllReduce, ElementType::kFloat32, 2048);
    submission.flags = GL_FLAG_CODEC;
    submission.codec = static_cast<uint8_t>(codec.id());
    submission.codec_arguments = std::bit_cast<uint64_t>(codec.arguments());
    trainers[0].put(0, submission);
    trainers.world.run_for(kMillisecond);
    const TrainerFault fault = row.is_additive ? TrainerFault::kNoLinks : TrainerFault::kDoesNotAdd;
    EXPECT_EQ(trainers[0].fault(0).fault.load(), fault) << row.word;
    EXPECT_EQ(trainers[0].fault(0).a, static_cast<uint64_t>(codec.id()));
  }
}

// Trainers of one node submit: one names the daemon's own strategy, the other names none.
TEST(StrategyMismatch, TheDaemonsOwnIsNoOther) {
  Trainers trainers(config("direct", 2));
  std::vector<uint64_t> cookies;
  for (unsigned rank = 0; rank < 8; ++rank) {
    cookies.push_back(trainers.submit(rank, {.count = 100, .strategy = rank % 2 == 0 ? "direct" : ""}));
  }
  for (const Outcome& end : trainers.outcomes_of(cookies)) EXPECT_EQ(end.failed, 0U) << end.text;
  cookies.clear();
  for (unsigned rank = 0; rank < 8; ++rank) {
    cookies.push_back(trainers.submit(rank, {.count = 100, .strategy = rank % 2 == 0 ? "ring" : ""}));
  }
  for (const Outcome& end : trainers.outcomes_of(cookies)) {
    EXPECT_NE(end.text.find("trainers of one node run different operations: strategy: "), std::string::npos)
        << end.text;
  }
}

}  // namespace
}  // namespace gradlane::test::trainer_strategies_test
