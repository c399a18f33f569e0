// tcp_sound_test.cc - no float of a TCP stream mixes exact and lossy bytes, whatever is lost, retransmitted and kept
//
// The model (tcp_model.h) does at random what hosts, networks and receivers may do. Each float must be as it was sent,
// or as the codec returns it. No float may be anything else. The last test shows that the model notices such floats.
#include <gtest/gtest.h>

#include "tests/dataplane/accelerator/engine/tcp_model.h"
#include "tests/thorough.h"

namespace gradlane::accel::test {
namespace {

const uint64_t kSeeds = rounds<uint64_t>(24);

struct Sum {
  Tally tally;
  size_t steps = 0;
  std::vector<uint64_t> figures = std::vector<uint64_t>(kCounterCount<StreamFigure>);
  [[nodiscard]] uint64_t operator[](StreamFigure figure) const { return figures[static_cast<size_t>(figure)]; }
};

Sum play_seeds(std::string_view codec_name, Plan plan, uint64_t seeds) {
  const Codec codec = find_codec(codec_name);
  Sum sum;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    plan.setup.seed = seed;
    const Outcome outcome = play(codec, plan, seed);
    if (plan.flaw == Flaw::kNone) {
      EXPECT_EQ(outcome.tally.mixed, 0u) << "seed " << seed;
      EXPECT_EQ(outcome.records_left, 0u) << "seed " << seed;
      EXPECT_EQ(outcome.streams_left, 0u) << "seed " << seed;
    }
    sum.tally += outcome.tally;
    sum.steps += outcome.steps;
    for (size_t i = 0; i < outcome.figures.size(); ++i) sum.figures[i] += outcome.figures[i];
  }
  EXPECT_EQ(sum.tally.stuck, 0u);
  EXPECT_EQ(sum[StreamFigure::kUnreadable], 0u);
  return sum;
}

TEST(TcpSound, NoFloatIsMixed) {
  for (const char* codec : {"fixed:10", "inceptionn:10"}) {
    SCOPED_TRACE(codec);
    const Sum sum = play_seeds(codec, {}, kSeeds);
    EXPECT_GT(sum.steps, kSeeds * 40'000);
    EXPECT_GT(sum.tally.floats, kSeeds * 15 * 1000);
    // The test is not trivial: many floats were compressed, and were retransmitted with the same and with other
    // boundaries.
    EXPECT_GT(sum.tally.lossy, sum.tally.floats / 5);
    EXPECT_GT(sum[StreamFigure::kSentAgain], 500u);
    EXPECT_GT(sum[StreamFigure::kOverwritten], 1000u);
    EXPECT_GT(sum[StreamFigure::kBadAck], 10u);
    EXPECT_GT(sum[StreamFigure::kGiven], 0u);
    EXPECT_EQ(sum[StreamFigure::kNoMemory], 0u);
  }
}

TEST(TcpSound, NoFloatIsMixedWithoutMemory) {
  Plan plan;
  plan.setup.memory = 8192;
  const Sum sum = play_seeds("fixed:10", plan, kSeeds);
  EXPECT_GT(sum[StreamFigure::kNoMemory], 1000u);
  EXPECT_GT(sum.tally.lossy, 1000u);
}

TEST(TcpSound, NoFloatIsMixedWhenTheTableIsFull) {
  Plan plan;
  plan.setup.streams = 8;
  plan.slots = 40;
  plan.connections = 50;
  const Sum sum = play_seeds("fixed:10", plan, kSeeds);
  EXPECT_GT(sum[StreamFigure::kEvicted], 10u);
  EXPECT_GT(sum[StreamFigure::kNotTracked], 10u);
  EXPECT_GT(sum.tally.lossy, 1000u);
}

// Each flaw removes something that keeps floats from mixing. The model must find it.
TEST(TcpSound, TheModelFindsWhatIsMissing) {
  for (const Flaw flaw : {Flaw::kNoOverwrite, Flaw::kNoLead, Flaw::kAcksEarly}) {
    Plan plan;
    plan.flaw = flaw;
    EXPECT_GT(play_seeds("fixed:10", plan, 4).tally.mixed, 10u) << "flaw " << static_cast<int>(flaw);
  }
}

}  // namespace
}  // namespace gradlane::accel::test
