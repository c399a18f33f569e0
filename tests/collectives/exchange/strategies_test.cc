// strategies_test.cc - every strategy: all kinds, types and codecs in many worlds, quiet and lossy
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "tests/collectives/exchange/exchange_fixture.h"

namespace gradlane::test::strategies_test {
namespace {

using enum ElementType;

const std::vector<std::string> kCodecs = {"raw", "bf16", "inceptionn:10", "fixed:10", "fixed:4"};

SimConfig switched(const std::string& strategy, unsigned world) {
  SimConfig config;
  config.nodes = world;
  config.seed = world;
  config.topology = SimTopology::kSwitch;
  config.exchange.strategies = {find_strategy(strategy)};
  return config;
}

Faults bad_weather() {
  return {.loss = 0.1, .duplicate = 0.05, .reorder = 0.1, .corrupt = 0.05, .busy = 0.05, .reorder_delay = 300'000};
}

// What a strategy is asked for by name.
std::vector<JobSpec> kinds(const std::string& strategy, unsigned world, size_t count, const std::string& codec) {
  std::vector<JobSpec> specs;
  for (JobSpec spec : all_kinds(world, count, count, codec)) {
    if (!supports(find_strategy(strategy), spec.kind)) continue;
    spec.strategy = strategy;
    specs.push_back(spec);
  }
  for (const Reduction pick : {Reduction::kMin, Reduction::kMax}) {
    specs.push_back({.kind = OpKind::kAllReduce, .count = count, .codec = codec, .strategy = strategy, .pick = pick});
  }
  return specs;
}

using Case = std::tuple<std::string, unsigned>;

class Strategies : public testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] std::string strategy() const { return std::get<0>(GetParam()); }
  [[nodiscard]] unsigned world() const { return std::get<1>(GetParam()); }

  void run_all(const std::vector<JobSpec>& specs, const Faults& faults = {}) const {
    SimConfig config = switched(strategy(), world());
    config.faults = faults;
    SimNet net(config);
    std::vector<Job> jobs = make_jobs(specs, world(), 10 * world());
    EXPECT_TRUE(run(net, jobs));
    if (!chances(faults)) {
      EXPECT_TRUE(no_retransmits(net));
      EXPECT_TRUE(all_given_back(net));
    }
  }

  static bool chances(const Faults& faults) { return faults.loss != 0; }
};

TEST_P(Strategies, AllCodecsAndKinds) {
  for (const std::string& codec : kCodecs) {
    std::vector<JobSpec> specs;
    for (const size_t count : {size_t{0}, size_t{1}, size_t{world()} - 1, size_t{1237}}) {
      for (const JobSpec& spec : kinds(strategy(), world(), count, codec)) specs.push_back(spec);
    }
    run_all(specs);
  }
}

TEST_P(Strategies, AllTypesAndKinds) {
  std::vector<JobSpec> specs;
  for (const ElementType type : {kFloat64, kFloat16, kBfloat16, kInt32, kInt64, kBytes}) {
    for (JobSpec spec : kinds(strategy(), world(), 1237, "raw")) {
      spec.type = type;
      if (spec.average && !is_floating(type)) continue;
      specs.push_back(spec);
      spec.fill = Fill::kWild;
      specs.push_back(spec);
    }
  }
  run_all(specs);
}

TEST_P(Strategies, WildFloats) {
  std::vector<JobSpec> specs;
  for (const std::string& codec : kCodecs) {
    for (JobSpec spec : kinds(strategy(), world(), 2111, codec)) {
      spec.fill = Fill::kWild;
      specs.push_back(spec);
    }
  }
  run_all(specs);
}

// Many windows of every owner.
TEST_P(Strategies, LargeTensors) {
  for (const std::string codec : {"raw", "fixed:10"}) {
    run_all({{.kind = OpKind::kAllReduce,
              .count = kSanitized ? size_t{200'003} : size_t{1'000'003},
              .codec = codec,
              .strategy = strategy()}});
  }
}

TEST_P(Strategies, ErrorFeedback) {
  const JobSpec reduce = {
      .kind = OpKind::kAllReduce, .count = 1237, .codec = "fixed:10", .feedback = true, .strategy = strategy()};
  std::vector<JobSpec> specs(3, reduce);
  specs[1].average = true;
  specs[2].count = 1;
  SimNet net(switched(strategy(), world()));
  std::vector<Job> jobs = make_jobs(specs, world(), 3);
  for (unsigned round = 0; round < 3; ++round) {
    for (Job& job : jobs) job.renew(100 * round + job.bytes());
    ASSERT_TRUE(run(net, jobs));
  }
}

TEST_P(Strategies, InBadWeather) {
  std::vector<JobSpec> specs;
  for (const std::string codec : {"raw", "fixed:10"}) {
    for (const size_t count : {size_t{1}, size_t{20'011}}) {
      for (const JobSpec& spec : kinds(strategy(), world(), count, codec)) specs.push_back(spec);
    }
  }
  run_all(specs, bad_weather());
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const unsigned world : {1U, 2U, 3U, 4U, 5U, 8U, 16U}) {
    list.emplace_back("direct", world);
    list.emplace_back("aggregator:0", world);
    if (world > 2) list.emplace_back("aggregator:" + std::to_string(world - 2) + ",stream", world);
    for (const unsigned group : {2U, 3U, 4U}) {
      if (world % group == 0) list.emplace_back("rings:" + std::to_string(group), world);
    }
  }
  list.emplace_back("rings:3", 9);
  return list;
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name = std::get<0>(info.param) + "_in_" + std::to_string(std::get<1>(info.param));
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(, Strategies, testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace gradlane::test::strategies_test
