// trainer_encoded_test.cc - contributions that trainers encode before their operations, and results as encoded runs
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "client/gradlane.h"
#include "compress/encoded_tensor.h"
#include "config/config.h"
#include "tests/dataplane/trainer/trainer_values.h"

namespace gradlane::test::trainer_encoded_test {
namespace {

constexpr size_t kCount = 40'000;
constexpr unsigned kSegment = 7;  // of encoded tensors
constexpr unsigned kRuns = 8;     // segment of results as runs
constexpr Nanos kLong = 5 * kSecond;

using Floats = std::vector<float>;

Floats values_of(unsigned rank) {
  std::mt19937 random(rank);
  std::normal_distribution<float> any(0, 1e-1F);
  Floats values(kCount);
  for (float& value : values) value = any(random);
  values[rank] = 1e30F;  // beyond the lattice
  return values;
}

gl_submission by(const Codec& codec, size_t count = kCount, size_t first = 0) {
  gl_submission it = submission_of(OpKind::kAllReduce, ElementType::kFloat32, count, first * sizeof(float));
  it.flags = GL_FLAG_CODEC;
  it.codec = static_cast<uint8_t>(codec.id());
  it.codec_arguments = std::bit_cast<uint64_t>(codec.arguments());
  it.residual_segment = kSegment;
  it.encoded_bytes = max_encoded_bytes(codec, kCount);
  it.encoded_first = first;
  it.encoded_count = kCount;
  return it;
}

gl_submission encode_by(const Codec& codec, size_t count = kCount, size_t first = 0) {
  gl_submission it = by(codec, count, first);
  it.kind = GL_ENCODE;
  return it;
}

gl_submission encoded_sum(const Codec& codec, size_t count = kCount, size_t first = 0) {
  gl_submission it = by(codec, count, first);
  it.flags |= GL_FLAG_ENCODED;
  return it;
}

gl_submission with_runs(gl_submission it) {
  it.flags |= GL_FLAG_RUNS;
  it.runs_segment = kRuns;
  it.runs_offset = 8;
  return it;
}

class EncodedTest {
 public:
  EncodedTest(const Codec& codec, unsigned lanes, const char* strategies, unsigned nodes = 3)
      : codec_(codec),
        nodes_(nodes),
        trainers_({.nodes = nodes, .lanes = lanes, .strategies = find_strategies(strategies)}) {
    for (unsigned rank = 0; rank < nodes; ++rank) add_segments(rank);
  }

  Trainers& trainers() { return trainers_; }
  float* data(unsigned rank) { return reinterpret_cast<float*>(trainers_[rank].segment(0)); }
  void put_values(unsigned rank) { std::memcpy(data(rank), values_of(rank).data(), kCount * sizeof(float)); }
  void put_garbage(unsigned rank) { std::memset(data(rank), 0xee, kCount * sizeof(float)); }

  Outcome run(unsigned rank, const gl_submission& submission) {
    const uint64_t cookie = trainers_[rank].submit(submission);
    EXPECT_TRUE(trainers_.world.run_until([&] { return trainers_[rank].over(cookie).has_value(); }, kLong));
    return trainers_[rank].over(cookie).value_or(Outcome{.lanes = 0, .failed = 99, .text = "not over"});
  }
  // Encodes a rank's values, and nothing else is left of them.
  void encode(unsigned rank) {
    put_values(rank);
    EXPECT_EQ(run(rank, encode_by(codec_)).failed, 0U);
    put_garbage(rank);
  }
  // Replaces rank 0's trainer, or its segments. Afterwards all ranks have their values again, and can go on.
  void replace(bool detaches) {
    if (detaches) {
      trainers_[0].detach();
      trainers_.come(0);
    } else {
      trainers_[0].remove_segment(kSegment);
      trainers_[0].remove_segment(kRuns);
    }
    add_segments(0);
    trainers_.world.run_for(kSecond);
    for (unsigned rank = 0; rank < nodes_; ++rank) trainers_[rank].resume();
    trainers_.world.run_for(kMillisecond);
    for (unsigned rank = 0; rank < nodes_; ++rank) put_values(rank);
  }
  // Runs a submission on each rank. Returns the bits of the results, which are the same on all ranks.
  std::vector<uint32_t> sum(const std::vector<gl_submission>& submissions) {
    std::vector<uint64_t> cookies;
    for (unsigned rank = 0; rank < nodes_; ++rank) cookies.push_back(trainers_[rank].submit(submissions[rank]));
    for (const Outcome& outcome : trainers_.outcomes_of(cookies)) EXPECT_EQ(outcome.failed, 0U) << outcome.text;
    std::vector<uint32_t> bits = result(0, submissions[0]);
    for (unsigned rank = 1; rank < nodes_; ++rank) EXPECT_EQ(result(rank, submissions[rank]), bits) << "rank " << rank;
    return bits;
  }

 private:
  void add_segments(unsigned rank) {
    trainers_[rank].add_segment(kSegment, max_encoded_bytes(codec_, kCount));
    trainers_[rank].add_segment(kRuns, gl_runs_space(kCount) + 8);
  }
  std::vector<uint32_t> result(unsigned rank, const gl_submission& submission) {
    std::vector<uint32_t> bits(kCount);
    std::memcpy(bits.data(), data(rank), kCount * sizeof(float));
    return (submission.flags & GL_FLAG_RUNS) != 0 ? decoded(rank) : bits;
  }
  // Decodes the runs of a rank's result, which have each float once.
  std::vector<uint32_t> decoded(unsigned rank) {
    const std::span<uint8_t> buffer(trainers_[rank].segment(kRuns) + 8, gl_runs_space(kCount));
    std::vector<float> floats(kCount);
    std::vector<uint8_t> found(kCount);
    for (size_t lane = 0; lane < kMaxLanes; ++lane) {
      gradlane_lane_runs runs;
      std::memcpy(&runs, buffer.data() + lane * sizeof runs, sizeof runs);
      size_t bytes = 0;
      for (size_t i = 0; i < runs.count; ++i) {
        gradlane_run run;
        std::memcpy(&run, buffer.subspan(runs.table + i * sizeof run, sizeof run).data(), sizeof run);
        bytes += run.bytes;
        EXPECT_TRUE(run.at >= runs.at && run.at + run.bytes <= runs.at + runs.bytes);
        const std::span to = std::span(floats).subspan(run.first, run.floats);
        EXPECT_EQ(codec_.decode(buffer.subspan(run.at, run.bytes), to), Status::kOk);
        for (size_t k = 0; k < run.floats; ++k) ++found[run.first + k];
      }
      EXPECT_EQ(bytes, runs.bytes);
    }
    EXPECT_EQ(std::ranges::count(found, 1), kCount);
    std::vector<uint32_t> bits(kCount);
    std::memcpy(bits.data(), floats.data(), kCount * sizeof(float));
    return bits;
  }

  const Codec codec_;
  const unsigned nodes_;
  Trainers trainers_;
};

// The sum of encoded contributions, handed over several times, and of some of them with floats of other ranks, has the
// bits of the sum of all floats.
TEST(EncodedContributions, HaveTheSumOfTheFloats) {
  for (const char* name : {"raw", "pack", "exact", "fixed:1", "fixed:10", "fixed:30"}) {
    for (const unsigned lanes : {1U, 3U}) {
      for (const char* strategies : {"ring", "direct"}) {
        const Codec codec = find_codec(name);
        if (codec.row().rounds_once && std::string_view(strategies) == "ring") continue;
        EncodedTest test(codec, lanes, strategies);
        for (unsigned rank = 0; rank < 3; ++rank) test.put_values(rank);
        const gl_submission floats = by(codec);
        const gl_submission encoded = encoded_sum(codec);
        const auto expected = test.sum({floats, floats, floats});
        for (unsigned rank = 0; rank < 3; ++rank) test.encode(rank);
        for (int i = 0; i < 3; ++i) {
          for (unsigned rank = 0; rank < 3; ++rank) test.put_garbage(rank);
          EXPECT_EQ(test.sum({encoded, encoded, encoded}), expected) << name << ", " << lanes << " lanes";
        }
        test.put_values(1);
        EXPECT_EQ(test.sum({encoded, floats, encoded}), expected) << name << ", " << lanes << " lanes";
        EXPECT_TRUE(test.trainers().world.idle());
      }
    }
  }
}

// A result as runs has the bits of the result as floats, whatever the other ranks ask for, with any contribution.
TEST(ResultsAsRuns, HaveTheBitsOfFloats) {
  struct Ring {
    unsigned nodes;
    const char* strategies;
  };
  for (const char* name : {"raw", "pack", "fixed:1", "fixed:10", "fixed:30"}) {
    for (const unsigned lanes : {1U, 3U}) {
      for (const Ring& ring :
           {Ring{1, "ring"}, Ring{2, "ring"}, Ring{3, "ring"}, Ring{3, "direct"}, Ring{4, "rings:2"}}) {
        SCOPED_TRACE(std::string(name) + " " + ring.strategies + " of " + std::to_string(ring.nodes));
        const Codec codec = find_codec(name);
        EncodedTest test(codec, lanes, ring.strategies, ring.nodes);
        const auto fill = [&] {
          for (unsigned rank = 0; rank < ring.nodes; ++rank) test.put_values(rank);
        };
        fill();
        const auto expected = test.sum(std::vector(ring.nodes, by(codec)));
        fill();
        EXPECT_EQ(test.sum(std::vector(ring.nodes, with_runs(by(codec)))), expected);
        for (unsigned rank = 0; rank < ring.nodes; ++rank) test.encode(rank);
        EXPECT_EQ(test.sum(std::vector(ring.nodes, with_runs(encoded_sum(codec)))), expected);
        std::vector mixed(ring.nodes, with_runs(encoded_sum(codec)));
        mixed[0] = encoded_sum(codec);
        mixed.back() = with_runs(by(codec));
        test.put_values(ring.nodes - 1);
        EXPECT_EQ(test.sum(mixed), expected);
        EXPECT_TRUE(test.trainers().world.idle());
      }
    }
  }
}

TEST(ResultsAsRuns, OfAveragesAreSums) {
  const Codec codec = find_codec("fixed:10");
  EncodedTest test(codec, 2, "ring");
  for (unsigned rank = 0; rank < 3; ++rank) test.put_values(rank);
  const auto expected = test.sum(std::vector(3, by(codec)));
  for (unsigned rank = 0; rank < 3; ++rank) test.put_values(rank);
  gl_submission average = with_runs(by(codec));
  average.flags |= GL_FLAG_AVERAGE;
  EXPECT_EQ(test.sum({average, average, average}), expected);
}

// A trainer goes, or frees the segment of the runs, while an operation is under way.
TEST(ResultsAsRuns, SurviveTrainersThatGo) {
  const Codec codec = find_codec("fixed:10");
  for (const bool detaches : {true, false}) {
    EncodedTest test(codec, 2, "ring");
    for (unsigned rank = 0; rank < 3; ++rank) test.put_values(rank);
    for (unsigned rank = 0; rank < 3; ++rank) test.trainers()[rank].submit(with_runs(by(codec)));
    test.trainers().world.step();
    test.replace(detaches);
    (void)test.sum(std::vector(3, with_runs(by(codec))));
  }
}

TEST(EncodedContributions, ExactSumsAndAverages) {
  const Codec codec = find_codec("fixed:10");
  EncodedTest test(codec, 2, "ring");
  for (const uint32_t flags : {uint32_t{GL_FLAG_AVERAGE}, uint32_t{GL_FLAG_EXACT}}) {
    std::vector<gl_submission> floats(3, by(codec));
    std::vector<gl_submission> encoded(3, encoded_sum(codec));
    for (unsigned rank = 0; rank < 3; ++rank) {
      floats[rank].flags |= flags;
      encoded[rank].flags |= flags;
      test.encode(rank);
    }
    // An exact sum adds what the codec has rounded.
    const auto sums = test.sum(encoded);
    for (unsigned rank = 0; rank < 3; ++rank) {
      Floats values = values_of(rank);
      std::vector<uint8_t> block(codec.max_bytes(kCount));
      const EncodeResult done = codec.encode(values, block);
      ASSERT_EQ(done.floats, kCount);
      ASSERT_EQ(codec.decode(std::span(block).first(done.bytes), values), Status::kOk);
      std::memcpy(test.data(rank), values.data(), kCount * sizeof(float));
    }
    EXPECT_EQ(test.sum(floats), sums) << flags;
  }
}

// A long tensor is encoded and summed in several operations, which need not have the same lengths.
TEST(EncodedContributions, InParts) {
  const Codec codec = find_codec("fixed:10");
  EncodedTest test(codec, 2, "ring");
  const gl_submission floats = by(codec);
  for (unsigned rank = 0; rank < 3; ++rank) test.put_values(rank);
  const auto expected = test.sum({floats, floats, floats});
  for (unsigned rank = 0; rank < 3; ++rank) {
    test.put_values(rank);
    EXPECT_EQ(test.run(rank, encode_by(codec, 2 * kEncodedBlock)).failed, 0U);
    const size_t first = 2 * kEncodedBlock;
    EXPECT_EQ(test.run(rank, encode_by(codec, kCount - first, first)).failed, 0U);
    test.put_garbage(rank);
  }
  constexpr size_t kFirst = 24'992;  // in a block
  const gl_submission begin = encoded_sum(codec, kFirst);
  (void)test.sum({begin, begin, begin});
  // The second part must not change the first one.
  const gl_submission end = encoded_sum(codec, kCount - kFirst, kFirst);
  EXPECT_EQ(test.sum({end, end, end}), expected);
}

// The operation fails on all ranks, wherever the contribution is malformed, and the next one works. Encoding takes no
// number of the ring.
TEST(EncodedContributions, MalformedOnesFailOnAllRanks) {
  for (const char* strategies : {"ring", "direct"}) {
    for (const char* name : {"fixed:10", "exact"}) {
      if (std::string_view(name) == "exact" && std::string_view(strategies) == "ring") continue;
      for (const size_t block : {0U, 4U, 9U}) {
        SCOPED_TRACE(std::string(name) + " " + strategies + ", block " + std::to_string(block));
        const Codec codec = find_codec(name);
        EncodedTest test(codec, 2, strategies);
        for (unsigned rank = 0; rank < 3; ++rank) test.encode(rank);
        std::memset(test.trainers()[1].segment(kSegment) + block * 8, 0xff, 8);
        std::vector<uint64_t> cookies;
        for (unsigned rank = 0; rank < 3; ++rank) cookies.push_back(test.trainers()[rank].submit(encoded_sum(codec)));
        for (const Outcome& outcome : test.trainers().outcomes_of(cookies)) {
          EXPECT_GE(outcome.failed, 1U);
          EXPECT_EQ(outcome.text, "the encoded contribution of rank 1 is malformed, or not of this codec and count");
        }
        EXPECT_TRUE(test.trainers().world.idle());
      }
    }
  }
  const Codec codec = find_codec("fixed:10");
  EncodedTest test(codec, 2, "ring");
  for (unsigned rank = 0; rank < 3; ++rank) test.encode(rank);
  std::memset(test.trainers()[1].segment(kSegment), 0xff, 24);
  const gl_submission encoded = encoded_sum(codec);
  std::vector<uint64_t> cookies;
  for (unsigned rank = 0; rank < 3; ++rank) cookies.push_back(test.trainers()[rank].submit(encoded));
  (void)test.trainers().outcomes_of(cookies);
  test.encode(1);
  test.encode(1);
  EXPECT_EQ(test.trainers()[1].fault(0).fault.load(), TrainerFault::kNone);
  (void)test.sum({encoded, encoded, encoded});
  EXPECT_TRUE(test.trainers().world.idle());
}

// A trainer goes, or frees the segment, while lanes encode or decode.
TEST(EncodedContributions, TrainersThatGo) {
  const Codec codec = find_codec("fixed:10");
  for (const bool detaches : {true, false}) {
    for (const bool encodes : {true, false}) {
      SCOPED_TRACE(std::string(detaches ? "detaches " : "removes ") + (encodes ? "encoding" : "decoding"));
      EncodedTest test(codec, 2, "ring");
      test.encode(0);
      test.trainers()[0].submit(encodes ? encode_by(codec) : encoded_sum(codec));
      for (unsigned rank = 1; rank < 3 && !encodes; ++rank) test.trainers()[rank].submit(by(codec));
      test.trainers().world.step();
      test.replace(detaches);
      const gl_submission floats = by(codec);
      (void)test.sum({floats, floats, floats});
    }
  }
}

}  // namespace
}  // namespace gradlane::test::trainer_encoded_test
