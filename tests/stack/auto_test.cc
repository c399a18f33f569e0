// auto_test.cc - operations that leave codec and strategy to the library: the choice, and what happens to it when ranks
// die, cancel, or disagree
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "config/choices.h"
#include "tests/stack/stack.h"
#include "tests/stack/trainers.h"

namespace gradlane::test::auto_test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

constexpr double kWorth = 0.95;
constexpr const char* kAuto = "auto:2^-10";
constexpr size_t kCount = 100'000;
const char* const kPlan = "plan: 1\nchoices:\n  - {from: 0, strategy: ring, codec: 'fixed:10'}\n";

// Waits for all requests. A request makes progress only in calls of its own rank, so this polls all of them in turn.
TrainerGroup::Outcomes wait_for_all(Stack& stack, TrainerGroup& team,
                                    const std::map<unsigned, gradlane_request>& requests) {
  TrainerGroup::Outcomes outcomes;
  const auto look = [&] {
    for (const auto& [rank, request] : requests) {
      if (outcomes.contains(rank)) continue;
      const Outcome ended = team[rank].test(request);
      if (ended.code != GRADLANE_PENDING) outcomes[rank] = ended;
    }
    return outcomes.size() == requests.size();
  };
  EXPECT_TRUE(stack.run_until(look, 120 * kSecond)) << "a rank hangs";
  return outcomes;
}

// ---- The choice

struct Job {
  unsigned nodes = 2;
  unsigned lanes = 1;
  unsigned trainers = 1;
  bool local_reduce = false;
  const char* strategies = "ring";
  uint64_t rate = 0;
  const char* codec = kAuto;
  unsigned operations = 24;
  double scale = 0.01;  // standard deviation of the values, which are gaussian
  std::vector<size_t> sizes = {400'000};
};

double bound_of(const Job& job, double largest, unsigned world) {
  const std::string codec = job.codec;
  if (codec.starts_with("auto:2^-")) return world * std::ldexp(1.0, -std::stoi(codec.substr(8)));
  if (!codec.starts_with("auto:rel=")) return 0;
  // Each hop may round the sum. The error is a share of the sum, which grows from hop to hop.
  return world * (world + 1) / 2.0 * std::ldexp(largest, -std::stoi(codec.substr(9)));
}

// Runs job.operations all-reduces of each size, and checks that sums are within the bound and equal on all ranks.
// Returns the plan statistics of node 0.
std::vector<PlanFigures> run(const Job& job) {
  Stack stack({.nodes = job.nodes, .strategies = job.strategies, .change = [&job](NodeConfig& it) {
                 it.lanes = job.lanes;
                 it.trainers = job.trainers;
                 it.local_reduce = job.local_reduce;
               }});
  stack.network().set_rate(job.rate);
  TrainerGroup team(stack);
  const unsigned world = stack.world();
  double largest = 0;
  std::vector<std::vector<std::vector<float>>> inputs(job.sizes.size());  // inputs by size and rank
  std::vector<std::vector<double>> sums(job.sizes.size());
  for (size_t i = 0; i < job.sizes.size(); ++i) {
    sums[i].resize(job.sizes[i] / sizeof(float));
    for (unsigned rank = 0; rank < world; ++rank) {
      std::mt19937 draw(rank * 7 + static_cast<unsigned>(i));
      std::normal_distribution<float> gaussian(0, static_cast<float>(job.scale));
      auto& values = inputs[i].emplace_back(sums[i].size());
      for (size_t k = 0; k < values.size(); ++k) {
        values[k] = gaussian(draw);
        sums[i][k] += static_cast<double>(values[k]);
        largest = std::max(largest, std::abs(static_cast<double>(values[k])));
      }
    }
  }
  const double bound = bound_of(job, largest, world) + 1e-5 * job.scale * world;
  for (unsigned operation = 0; operation < job.operations; ++operation) {
    std::vector<std::map<unsigned, gradlane_request>> requests(job.sizes.size());
    for (unsigned rank = 0; rank < world; ++rank) {
      for (size_t i = 0; i < job.sizes.size(); ++i) {
        const auto array = team[rank].array(static_cast<unsigned>(i), sums[i].size());
        std::ranges::copy(inputs[i][rank], array.begin());
        requests[i][rank] = team[rank].all_reduce(array, {.codec = job.codec});
      }
    }
    for (size_t i = 0; i < job.sizes.size(); ++i) {
      EXPECT_TRUE(all_succeeded(wait_for_all(stack, team, requests[i])));
      const auto first = team[0].array(static_cast<unsigned>(i), sums[i].size());
      double off = 0;
      for (size_t k = 0; k < first.size(); ++k)
        off = std::max(off, std::abs(static_cast<double>(first[k]) - sums[i][k]));
      EXPECT_LE(off, bound) << job.codec;
      for (unsigned rank = 1; rank < world; ++rank) {
        EXPECT_EQ(digest_of(team[rank].array(static_cast<unsigned>(i), sums[i].size())), digest_of(first));
      }
    }
  }
  return stack.figures(0).plan;
}

// Expects that the choice agrees with the measured times: exact, unless a lossy codec takes less than 95 % (kWorth) of
// the time of the fastest exact one.
void expect_follows(const PlanFigures& row) {
  const std::string text = plan_line(row);
  EXPECT_TRUE(row.settled) << text;
  if (row.exact && row.rival_measured > 0) {
    EXPECT_LE(kWorth * row.measured, row.rival_measured) << text;
  }
  if (!row.exact) {
    EXPECT_LT(row.measured, row.baseline) << text;
  }
}

TEST(Chosen, OfThreeSizes) {
  for (const Job& job : {Job{.sizes = {20'000, 400'000, 2'000'000}},
                         Job{.nodes = 4, .strategies = "ring,direct", .sizes = {20'000, 400'000, 2'000'000}},
                         Job{.lanes = 2, .sizes = {20'000, 400'000, 2'000'000}}}) {
    const std::vector<PlanFigures> rows = run(job);
    ASSERT_EQ(rows.size(), 3U);
    const uint64_t from[] = {16 << 10, 256 << 10, 1 << 20};
    for (size_t i = 0; i < 3; ++i) {
      expect_follows(rows[i]);
      EXPECT_EQ(rows[i].operations, 24U);
      EXPECT_EQ(rows[i].from, from[i]);
    }
  }
}

TEST(Chosen, CompressingWinsOnSlowLinks) {
  for (const unsigned nodes : {2U, 4U}) {
    const std::vector<PlanFigures> rows = run({.nodes = nodes, .rate = 100'000'000});
    ASSERT_EQ(rows.size(), 1U);
    expect_follows(rows[0]);
    EXPECT_EQ(rows[0].codec, "fixed:10") << plan_line(rows[0]);
  }
}

// No float fits the codec's range, so all are sent as fp32. The codec then takes as many bytes as raw, plus those of
// its tags. `pack` takes fewer.
TEST(Chosen, CompressingLosesWhatCannotBeCompressed) {
  const std::vector<PlanFigures> rows = run({.rate = 100'000'000, .codec = "auto:2^-24", .scale = 1e3});
  ASSERT_EQ(rows.size(), 1U);
  expect_follows(rows[0]);
  EXPECT_EQ(rows[0].codec, "pack") << plan_line(rows[0]);
  EXPECT_THAT(rows[0].why, ContainsRegex("exact: fixed:24 .* takes longer"));
}

TEST(Chosen, ExactUnlessAsked) {
  const std::vector<PlanFigures> rows = run({.codec = "auto"});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_TRUE(rows[0].exact) << rows[0].codec;
  EXPECT_THAT(rows[0].why, HasSubstr("no codec that rounds was asked for"));
  // A rank sends half of a tensor to the other rank, and half of the sum.
  EXPECT_GT(static_cast<double>(rows[0].sent_bytes), 0.8 * static_cast<double>(rows[0].bytes));
  EXPECT_LT(static_cast<double>(rows[0].sent_bytes), 1.1 * static_cast<double>(rows[0].bytes));
}

TEST(Chosen, WithinRelativeBounds) {
  for (const char* const strategies : {"ring", "direct,ring"}) {
    const std::vector<PlanFigures> rows = run({.nodes = 3, .strategies = strategies, .codec = "auto:rel=7"});
    ASSERT_EQ(rows.size(), 1U);
    expect_follows(rows[0]);
  }
}

TEST(Chosen, AlikeByTrainersThatReduceLocally) {
  std::vector<PlanFigures> rows = run({.trainers = 2, .local_reduce = true});
  ASSERT_EQ(rows.size(), 2U);
  std::ranges::sort(rows, {}, &PlanFigures::rank);
  EXPECT_EQ(rows[0].rank, 0U);
  EXPECT_EQ(rows[1].rank, 1U);
  EXPECT_EQ(rows[0].codec, rows[1].codec);
  expect_follows(rows[0]);
}

// ---- When things go wrong

class Auto {
 public:
  explicit Auto(const StackConfig& config = {.nodes = 2}) : stack(config), team(stack) {}

  // Runs an all-reduce on each of these ranks. Returns their outcomes.
  TrainerGroup::Outcomes one(const std::vector<unsigned>& ranks, const std::map<unsigned, How>& how = {}) {
    std::map<unsigned, gradlane_request> requests;
    for (const unsigned rank : ranks) {
      const How its = how.contains(rank) ? how.at(rank) : How{.codec = kAuto};
      requests[rank] = team[rank].all_reduce(filled(rank), its);
    }
    return wait_for_all(stack, team, requests);
  }
  std::span<float> filled(unsigned rank) {
    const auto array = team[rank].array(0, kCount);
    for (size_t i = 0; i < kCount; ++i) array[i] = static_cast<float>(i % 7) * 0.125F + static_cast<float>(rank);
    return array;
  }
  // Runs `operations` all-reduces on all ranks, and expects the right sums.
  void expect_sums(unsigned operations) {
    const unsigned world = stack.world();
    for (unsigned i = 0; i < operations; ++i) {
      std::vector<unsigned> all(world);
      for (unsigned rank = 0; rank < world; ++rank) all[rank] = rank;
      for (const auto& [rank, ended] : one(all)) {
        ASSERT_EQ(ended.code, GRADLANE_OK) << "rank " << rank << ": " << ended.text;
        size_t wrong = 0;
        const auto array = team[rank].array(0, kCount);
        for (size_t k = 0; k < kCount; ++k) {
          wrong += array[k] != static_cast<float>(world) * static_cast<float>(k % 7) * 0.125F +
                                   static_cast<float>(world * (world - 1)) / 2;
        }
        EXPECT_EQ(wrong, 0U) << "rank " << rank;
      }
    }
  }

  Stack stack;
  TrainerGroup team;
};

bool all_fail(const TrainerGroup::Outcomes& outcomes) {
  return std::ranges::all_of(outcomes, [](const auto& it) { return it.second.code == GRADLANE_FAILED; });
}

// A rank leaves at different times. The other rank gets an error. Then both ranks resume and start to choose again.
TEST(Auto, ARankThatGoesInMidTrial) {
  Auto it({.nodes = 2, .strategies = "ring,direct"});
  uint64_t tag = 0;
  for (const unsigned before : {1U, 5U, 12U, 13U, 30U}) {
    it.expect_sums(before);
    it.team.close(1);
    const How how{.codec = kAuto, .timeout_ms = 5000};
    EXPECT_TRUE(all_fail(it.one({0}, {{0, how}})) || all_fail(it.one({0}, {{0, how}})));
    it.team.open(1);
    it.team.resume(++tag << 20);
    it.expect_sums(20);
  }
}

// resume() on rank 0 ends the generation, and rank 0 gets no error for that. An operation that is cancelled later ends
// no generation. It must not make rank 0 alone restart its trials.
TEST(Auto, ResumeWithoutAnError) {
  Auto it;
  it.expect_sums(5);
  const gradlane_request first = it.team[0].all_reduce(it.filled(0), {.codec = kAuto});
  it.team[0].resume(1 << 20);
  it.stack.run_for(kMillisecond);
  EXPECT_EQ(it.team[0].wait(first).code, GRADLANE_FAILED);
  EXPECT_TRUE(all_fail(it.one({1})));
  it.team[1].resume(1 << 20);
  it.stack.run_for(kMillisecond);
  it.expect_sums(14);
  const gradlane_request given_up = it.team[0].all_reduce(it.filled(0), {.codec = kAuto});
  EXPECT_EQ(gradlane_cancel(it.team[0].gl(), given_up), GRADLANE_OK);
  EXPECT_EQ(it.team[0].wait(given_up).code, GRADLANE_FAILED);
  EXPECT_TRUE(all_fail(it.one({1})));
  it.expect_sums(14);
}

// An operation that waits for the ranks to agree fails on all ranks if it is cancelled or runs out of time.
TEST(Auto, CancelledWhileRanksAgree) {
  Auto it;
  for (const uint64_t tag : {1U, 2U}) {
    const How how{.codec = kAuto, .timeout_ms = tag == 2 ? 500 : 60'000};
    const gradlane_request request = it.team[0].all_reduce(it.filled(0), how);
    if (tag == 1) {
      EXPECT_EQ(gradlane_cancel(it.team[0].gl(), request), GRADLANE_OK);
    }
    EXPECT_EQ(it.team[0].wait(request).code, GRADLANE_FAILED);
    EXPECT_TRUE(all_fail(it.one({1})));
    it.team.resume(tag << 20);
    it.expect_sums(14);
  }
}

// One rank starts to choose again and the other does not. Operations must fail, not give wrong sums.
TEST(Auto, RanksThatDisagreeAreTold) {
  Auto it;
  it.expect_sums(20);
  it.team[0].resume(20);
  it.stack.run_for(kMillisecond);
  const How how{.codec = kAuto, .tag = 20, .timeout_ms = 20'000};
  EXPECT_TRUE(all_fail(it.one({0, 1}, {{0, how}, {1, how}})));
  it.team.resume(1 << 20);
  it.expect_sums(20);
}

// Rank 0 asks for auto and rank 1 for raw: the error on rank 1 and its log name this difference.
TEST(Auto, TheRankWithoutAutoIsNamed) {
  Auto it;
  const auto outcomes =
      it.one({0, 1}, {{0, {.codec = kAuto, .timeout_ms = 5000}}, {1, {.codec = "raw", .timeout_ms = 5000}}});
  EXPECT_TRUE(all_fail(outcomes));
  const std::string named =
      "who chooses codec and strategy: (the caller on .*, gradlane \\(auto\\) on rank 0|gradlane .* on rank 1)";
  EXPECT_THAT(outcomes.at(1).text, ContainsRegex(named));
  it.stack.run_for(kSecond);
  EXPECT_TRUE(it.stack.logged(1, named));
}

// The daemons have different plans. All operations use raw, and a warning says so.
TEST(Auto, DaemonsThatDiffer) {
  Auto it({.nodes = 2, .change = [](NodeConfig& config) {
             config.auto_codec = kAuto;
             if (config.rank == 1) config.plan = parse_plan(kPlan, "plan.yaml", config.strategies, 2);
           }});
  it.expect_sums(4);
  const char* const warning = gradlane_warning(it.team[0].gl());
  ASSERT_NE(warning, nullptr);
  EXPECT_THAT(warning, HasSubstr("have different plans"));
  const std::vector<PlanFigures> rows = it.stack.figures(0).plan;
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].codec, "raw");
  EXPECT_THAT(rows[0].why, HasSubstr("offer other codecs or strategies"));
}

// A plan that all daemons have is followed.
TEST(Auto, APlanIsKept) {
  Auto it({.nodes = 2, .change = [](NodeConfig& config) {
             config.auto_codec = kAuto;
             config.plan = parse_plan(kPlan, "plan.yaml", config.strategies, 2);
           }});
  it.expect_sums(3);
  const std::vector<PlanFigures> rows = it.stack.figures(0).plan;
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].codec, "fixed:10");
  EXPECT_TRUE(rows[0].frozen);
}

// Reduces and reduce-scatters are classes of their own. All ranks make the same choice for each.
TEST(Auto, OtherSums) {
  Auto it({.nodes = 3, .strategies = "ring,direct"});
  constexpr size_t kElements = 90'000;
  for (int i = 0; i < 24; ++i) {
    for (const bool scatter : {false, true}) {
      std::map<unsigned, gradlane_request> requests;
      for (unsigned rank = 0; rank < 3; ++rank) {
        const auto array = it.team[rank].array(1, kElements);
        std::ranges::fill(array, static_cast<float>(rank + 1));
        const gradlane_how how = how_of({.codec = kAuto});
        gradlane_context* const gl = it.team[rank].gl();
        ASSERT_EQ(
            scatter ? gradlane_reduce_scatter(gl, array.data(), kElements / 3, GRADLANE_FLOAT32, &how, &requests[rank])
                    : gradlane_reduce(gl, array.data(), kElements, GRADLANE_FLOAT32, 1, &how, &requests[rank]),
            GRADLANE_OK)
            << gradlane_error(gl);
      }
      it.stack.wake_all();
      ASSERT_TRUE(all_succeeded(wait_for_all(it.stack, it.team, requests)));
      for (unsigned rank = 0; rank < 3; ++rank) {
        const auto array = it.team[rank].array(1, kElements);
        if (scatter) {
          EXPECT_EQ(array[rank * kElements / 3], 6);
        }
        if (!scatter && rank == 1) {
          EXPECT_EQ(array[0], 6);
        }
      }
    }
  }
  const std::vector<PlanFigures> rows = it.stack.figures(0).plan;
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].operation, "reduce");
  EXPECT_EQ(rows[1].operation, "reduce_scatter");
  for (const PlanFigures& row : rows) EXPECT_TRUE(row.settled) << plan_line(row);
}

}  // namespace
}  // namespace gradlane::test::auto_test
