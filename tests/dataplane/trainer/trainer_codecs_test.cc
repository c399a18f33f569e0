// trainer_codecs_test.cc - every codec of the table through trainers' rings: arguments, states, scans of whole tensors
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "dataplane/trainer/scan_barrier.h"
#include "tests/dataplane/trainer/trainer_values.h"

namespace gradlane::test::trainer_codecs_test {
namespace {

constexpr size_t kCount = 40'000;
constexpr size_t kPitch = kCount + 24;

using Floats = std::vector<float>;

const Floats& values_of(unsigned rank, unsigned round) {
  static std::map<unsigned, Floats> made;  // kept, because making them takes longer than summing them
  const unsigned seed = rank * 100 + round;
  Floats& values = made[seed];
  if (!values.empty()) return values;
  std::mt19937 random(seed);
  std::normal_distribution<float> any(0, 1e-2F);
  values.resize(kCount);
  for (float& value : values) value = any(random);
  return values;
}

struct Ends {
  std::vector<std::vector<Floats>> results;  // by round, rank
  std::vector<Floats> states;                // by rank
};

// Runs three rounds of a sum, with states if the codec has any.
Ends run(const Codec& codec, const TrainerConfig& config) {
  Trainers trainers(config);
  const unsigned ranks = trainers.world.ranks();
  const size_t bytes = kPitch * sizeof(float) * std::max(1U, codec.states());
  for (unsigned rank = 0; rank < ranks; ++rank) trainers[rank].add_segment(7, bytes);
  Ends ends;
  for (unsigned round = 0; round < 3; ++round) {
    std::vector<uint64_t> cookies;
    for (unsigned rank = 0; rank < ranks; ++rank) {
      const Floats& values = values_of(rank, round);
      std::memcpy(trainers[rank].segment(0), values.data(), kCount * sizeof(float));
      gl_submission submission = submission_of(OpKind::kAllReduce, ElementType::kFloat32, kCount);
      submission.flags = GL_FLAG_CODEC | (codec.states() != 0 ? GL_FLAG_RESIDUAL : 0);
      submission.codec = static_cast<uint8_t>(codec.id());
      submission.codec_arguments = std::bit_cast<uint64_t>(codec.arguments());
      submission.residual_segment = 7;
      submission.state_pitch = kPitch;
      cookies.push_back(trainers[rank].submit(submission));
    }
    std::vector<Floats> results(ranks, Floats(kCount));
    const auto outcomes = trainers.outcomes_of(cookies);
    for (unsigned rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(outcomes[rank].failed, 0U) << codec.name() << ": " << outcomes[rank].text;
      std::memcpy(results[rank].data(), trainers[rank].segment(0), kCount * sizeof(float));
    }
    ends.results.push_back(results);
  }
  for (unsigned rank = 0; rank < ranks; ++rank) {
    Floats states(bytes / sizeof(float));
    std::memcpy(states.data(), trainers[rank].segment(7), bytes);
    ends.states.push_back(states);
  }
  EXPECT_TRUE(trainers.world.idle());
  return ends;
}

TrainerConfig config(unsigned lanes, unsigned trainers = 1) {
  return {.nodes = 2, .lanes = lanes, .trainers = trainers, .strategies = find_strategies("direct")};
}

bool same(const Floats& a, const Floats& b) { return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0; }

bool zeros(const float* at, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (at[i] != 0) return false;
  }
  return true;
}

// All ranks get the same bytes, with any number of lanes, and of trainers that are summed up first. Each state is
// written at its own offset, and nothing between the states is written.
TEST(TrainerCodecs, Each) {
  for (const CodecRow& row : codec_table()) {
    const Codec codec = find_codec(row.example);
    for (const unsigned trainers : {1U, 2U}) {
      if (trainers > 1 && row.rounds_once) continue;  // refused
      const Ends ends = run(codec, config(3, trainers));
      for (const auto& results : ends.results) {
        for (const Floats& result : results) EXPECT_TRUE(same(result, results[0])) << codec.name();
      }
      if (codec.states() == 0) continue;
      // Only the states of a node's first trainer are used.
      EXPECT_FALSE(zeros(ends.states[0].data(), kCount)) << codec.name();
      for (unsigned state = 0; state < codec.states(); ++state) {
        EXPECT_TRUE(zeros(ends.states[0].data() + state * kPitch + kCount, kPitch - kCount)) << codec.name();
      }
      if (trainers > 1) {
        EXPECT_TRUE(zeros(ends.states[1].data(), ends.states[1].size()));
      }
    }
  }
}

// A trainer may use a codec without having asked the daemon for it. One operation fails on each rank, and the next one
// works.
TEST(TrainerCodecs, ThatDoNotFitIntoAPacket) {
  TrainerConfig small = config(1);
  small.mtu = 548;
  Trainers trainers(small);
  const Codec codec = find_codec("int8:1024");
  for (const bool fits : {false, true}) {
    std::vector<uint64_t> cookies;
    for (unsigned rank = 0; rank < 2; ++rank) {
      gl_submission submission = submission_of(OpKind::kAllReduce, ElementType::kFloat32, kCount);
      submission.flags = fits ? 0 : GL_FLAG_CODEC;
      submission.codec = static_cast<uint8_t>(codec.id());
      submission.codec_arguments = std::bit_cast<uint64_t>(codec.arguments());
      cookies.push_back(trainers[rank].submit(submission));
    }
    for (const Outcome& outcome : trainers.outcomes_of(cookies)) {
      EXPECT_EQ(outcome.failed, fits ? 0U : 1U) << outcome.text;
      if (fits) continue;
      EXPECT_TRUE(outcome.text.starts_with("codec int8:1024: a chunk of 1024 floats can take 1028 bytes, but MTU "))
          << outcome.text;
      EXPECT_TRUE(outcome.text.ends_with(": choose a smaller chunk, or raise `mtu` on all nodes")) << outcome.text;
    }
  }
}

// Each lane scans the whole tensor, so several lanes select the same elements as one lane.
TEST(TrainerCodecs, LanesAgree) {
  const auto row =
      std::ranges::find_if(codec_table(), [](const CodecRow& it) { return it.passes != 0 && it.has_rate; });
  if (row == codec_table().end()) GTEST_SKIP() << "there is no such codec";
  const Codec codec = find_codec(row->example);
  for (const unsigned trainers : {1U, 2U}) {
    const Ends one = run(codec, config(1, trainers));
    const Ends three = run(codec, config(3, trainers));
    for (size_t round = 0; round < one.results.size(); ++round) {
      EXPECT_TRUE(same(one.results[round][0], three.results[round][0])) << trainers << " trainers, round " << round;
    }
    EXPECT_TRUE(same(one.states[0], three.states[0]));
  }
}

// The last lane that leaves an entry makes it free for another operation.
TEST(ScanBarrier, LastLaneMakesRoom) {
  ScanBarrier looks(2);
  ScanBarrier::Entry& entry = looks.of(GL_SLOTS + 5);
  EXPECT_EQ(&entry, &looks.of(5));
  EXPECT_EQ(entry.scans_left.load(), 2U);
  entry.scans_left.fetch_sub(2);
  entry.to_sum.fetch_sub(1);
  looks.leave(entry);
  EXPECT_EQ(entry.scans_left.load(), 0U);
  looks.leave(entry);
  EXPECT_EQ(entry.scans_left.load(), 2U);
  EXPECT_EQ(entry.to_sum.load(), 2U);
}

}  // namespace
}  // namespace gradlane::test::trainer_codecs_test
