// codecs_test.cc - tests of every codec with every strategy that it can use, compared with an in-order reference
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "sim/reference.h"
#include "tests/collectives/exchange/exchange_fixture.h"

namespace gradlane::test::codecs_test {
namespace {

using Kind = StrategyId::Kind;
using Floats = std::vector<float>;

// Returns one name of each row, and also one with a lattice (+fixed:10) if the row allows that.
std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const CodecRow& row : codec_table()) {
    names.emplace_back(row.example);
    const std::string_view example = row.example;
    if (row.takes_lattice && example.find('+') == example.npos) names.push_back(std::string(example) + "+fixed:10");
  }
  return names;
}

struct TestCase {
  std::string strategy = "ring";
  unsigned world = 3;
  OpKind kind = OpKind::kAllReduce;
  size_t count = 1000;
  bool feedback = false;
  bool average = false;
  const char* back = nullptr;
  bool wild = false;
  Faults faults{};
  size_t buffers = size_t{1} << 20;
};

bool may(const Codec& codec, const TestCase& way) {
  const StrategyId strategy = find_strategy(way.strategy);
  const bool owners = strategy.kind == Kind::kDirect || strategy.kind == Kind::kAggregator;
  if (!supports(strategy, way.kind) || (way.feedback && !codec.has_feedback())) return false;
  return codec.row().is_additive || owners || way.world == 1;
}

SimConfig network(const Codec& codec, const TestCase& way) {
  SimConfig config;
  config.nodes = way.world;
  config.topology = SimTopology::kSwitch;
  config.faults = way.faults;
  config.buffers = way.buffers;
  config.exchange.codec = find_codec("raw");
  // Smaller limits than the defaults, because clearing memory would take nearly all the time.
  config.exchange.operations = 2;
  config.exchange.max_bytes = size_t{1} << 20;
  config.exchange.strategies = {find_strategy(way.strategy)};
  const bool agrees = codec.row().agreement != Agreement::kNone;
  if (agrees && way.strategy != "direct") config.exchange.strategies.push_back(find_strategy("direct"));
  return config;
}

SimInputs inputs_of(const TestCase& way, uint64_t seed) {
  static std::map<uint64_t, SimInputs> made;  // making inputs takes longer than most tests of them
  SimInputs inputs = made.try_emplace(seed, "laplace-1e-3", seed).first->second;
  if (!way.wild) return inputs;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float wild[] = {kInf, -kInf, std::bit_cast<float>(0x7fc12345), 1e30F, -3e38F, 1e-42F, -0.0F, 17.0F};
  for (size_t i = 0; i < 2000; ++i) inputs.put(i * 31 % 65521, wild[i % std::size(wild)]);
  return inputs;
}

// Operations that run one after the other on one network, and the result of the latest.
class Rounds {
 public:
  Rounds(const std::string& name, const TestCase& way)
      : codec_(find_codec(name)), way_(way), net_(network(codec_, way)), tensors_(way.world, elements()) {
    states_.assign(way.world, Floats(way.feedback ? codec_.states() * elements() : 0));
    model_ = states_;
  }

  void run(unsigned rounds) {
    for (unsigned round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
      const SimInputs inputs = inputs_of(way_, 10 + round);
      for (unsigned i = 0; i < way_.world; ++i) inputs.fill(i, tensors_.of(i));
      for (unsigned i = 0; i < way_.world; ++i) (void)net_.submit(i, operation(i));
      ASSERT_TRUE(net_.run_until_idle(net_.now() + 60 * kSecond));
      ASSERT_TRUE(all_succeeded(net_));
      const SimRun run{.generation = net_.node(0).exchange().generation(), .number = round, .states = &model_};
      EXPECT_EQ(count_wrong(operation(0), codec_, inputs, tensors_, run), 0U) << "round " << round;
      for (unsigned i = 0; i < way_.world; ++i) {
        const size_t bytes = states_[i].size() * sizeof(float);
        if (bytes == 0) continue;
        EXPECT_EQ(std::memcmp(states_[i].data(), model_[i].data(), bytes), 0) << "states of rank " << i;
      }
    }
  }

  [[nodiscard]] Floats outcome() const { return {tensors_.of(0).begin(), tensors_.of(0).end()}; }
  SimNet& net() { return net_; }

 private:
  [[nodiscard]] size_t elements() const { return way_.count * (has_shares(way_.kind) ? way_.world : 1); }
  Operation operation(unsigned rank) {
    Operation operation;
    operation.kind = way_.kind;
    operation.codec = codec_;
    operation.count = way_.count;
    operation.root = has_root(way_.kind) ? way_.world - 1 : 0;
    operation.strategy = find_strategy(way_.strategy);
    if (way_.back != nullptr) operation.back_codec = find_codec(way_.back);
    if (way_.average) operation.reduction = Reduction::kAverage;
    operation.data = tensors_.of(rank).data();
    operation.residual = way_.feedback ? states_[rank].data() : nullptr;
    return operation;
  }

  Codec codec_;
  TestCase way_;
  SimNet net_;
  SimTensors tensors_;
  std::vector<Floats> states_;
  std::vector<Floats> model_;
};

void check(const std::string& name, const TestCase& way, unsigned rounds = 2) {
  const Codec codec = find_codec(name);
  if (!may(codec, way)) return;
  SCOPED_TRACE(testing::Message() << name << ", " << way.strategy << " of " << way.world << ", " << op_name(way.kind)
                                  << " of " << way.count << (way.feedback ? ", feedback" : ""));
  Rounds(name, way).run(rounds);
}

class AllCodecs : public testing::TestWithParam<std::string> {
 protected:
  // Checks the codec with each strategy that it can use, each in one of the worlds that fit the strategy. The world
  // changes from strategy to strategy and from codec to codec. Thorough tests use all of these worlds.
  static void everywhere(const std::vector<unsigned>& worlds, const TestCase& like, unsigned rounds) {
    const std::vector<std::string> all = names();
    size_t turn = static_cast<size_t>(std::ranges::find(all, GetParam()) - all.begin());
    for (const std::string strategy : {"ring", "direct", "aggregator:0", "aggregator:1,stream", "rings:2"}) {
      std::vector<unsigned> fitting = worlds;
      std::erase_if(fitting, [&](unsigned world) {
        return (world == 1 && strategy.starts_with("agg")) ||
               (strategy == "rings:2" && (world % 2 != 0 || world == 2)) || (world > 5 && !thorough());
      });
      if (fitting.empty()) continue;
      if (!thorough()) fitting = {fitting[turn++ % fitting.size()]};
      for (const unsigned world : fitting) {
        TestCase way = like;
        way.world = world;
        way.strategy = strategy;
        check(GetParam(), way, rounds);
      }
    }
  }
};

TEST_P(AllCodecs, GiveWhatTheReferenceGives) {
  for (const size_t count : {size_t{1}, size_t{95}, size_t{5003}}) everywhere({1, 2, 3, 4, 5, 8}, {.count = count}, 2);
  // An owner adds this tensor in many windows.
  everywhere(thorough() ? std::vector{2U, 4U} : std::vector{4U}, {.count = 70'003, .average = true}, 1);
}

TEST_P(AllCodecs, KeepTheirStates) { everywhere({1, 2, 3, 4, 8}, {.count = 3001, .feedback = true}, 3); }

TEST_P(AllCodecs, SendNanAndInf) {
  everywhere({1, 2, 5}, {.count = 2003, .wild = true}, 1);
  everywhere({3, 4}, {.count = 2003, .feedback = true, .wild = true}, 2);
}

TEST_P(AllCodecs, InBadWeather) {
  const Faults faults = {
      .loss = 0.1, .duplicate = 0.05, .reorder = 0.1, .corrupt = 0.05, .busy = 0.05, .reorder_delay = 300'000};
  everywhere({4}, {.count = 20'011, .faults = faults}, 1);
  everywhere({2, 3}, {.count = 20'011, .feedback = true, .faults = faults}, 2);
}

TEST_P(AllCodecs, OfOtherKinds) {
  for (const OpKind kind : {OpKind::kReduceScatter, OpKind::kReduce, OpKind::kAllGather, OpKind::kBroadcast}) {
    for (const std::string strategy : {"ring", "direct"}) {
      for (const bool feedback : {false, true}) {
        if (feedback && !reduces(kind)) continue;
        check(GetParam(), {.strategy = strategy, .world = 3, .kind = kind, .count = 2003, .feedback = feedback});
      }
    }
  }
}

TEST_P(AllCodecs, WithFewBuffers) {
  for (const std::string strategy : {"ring", "direct", "aggregator:0", "rings:2"}) {
    const TestCase way = {.strategy = strategy, .world = 4, .count = 50'003, .faults = {.loss = 0.01}, .buffers = 8};
    check(GetParam(), way, 1);
  }
}

// The codec is used in both directions.
TEST_P(AllCodecs, OnBothWaysOfAnAggregator) {
  for (const std::string strategy : {"aggregator:0", "aggregator:1,stream"}) {
    for (const char* const back : {GetParam().c_str(), "fixed:12"}) {
      for (const bool feedback : {false, true}) {
        check(GetParam(), {.strategy = strategy, .count = 9001, .feedback = feedback, .back = back});
      }
    }
  }
}

// If sums are exact, all strategies give the same bytes.
TEST_P(AllCodecs, AddExactlyWhereTheySaySo) {
  const Codec codec = find_codec(GetParam());
  if (!codec.row().exact_sums || !codec.row().is_additive) return;
  for (const bool feedback : {false, true}) {
    TestCase way = {.strategy = "ring", .world = 8, .count = 30'011, .feedback = feedback && codec.has_feedback()};
    Rounds ring(GetParam(), way);
    ring.run(2);
    for (const char* const strategy : {"direct", "rings:2", "rings:4"}) {
      way.strategy = strategy;
      Rounds other(GetParam(), way);
      other.run(2);
      const Floats one = ring.outcome();
      const Floats two = other.outcome();
      EXPECT_EQ(std::memcmp(one.data(), two.data(), one.size() * sizeof(float)), 0) << strategy << ", " << GetParam();
    }
  }
}

// Divides the tensor of each rank among three networks. Each of them scans the complete tensor before any of them
// changes it.
void run_lanes(const Codec& codec, const TestCase& way, const SimTensors& tensors, std::vector<Floats>& states) {
  constexpr size_t kLanes = 3;
  const SimConfig config = network(codec, way);
  std::array<SimNet, kLanes> lanes{SimNet(config), SimNet(config), SimNet(config)};
  std::vector<std::atomic<uint32_t>> scans_left(way.world);
  const std::array<size_t, kLanes + 1> cuts = {0, 9056, 20'000, way.count};
  for (unsigned rank = 0; rank < way.world; ++rank) {
    scans_left[rank] = kLanes;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      Operation part;
      part.codec = codec;
      part.strategy = find_strategy(way.strategy);
      part.whole = way.count;
      part.offset = cuts[lane];
      part.count = cuts[lane + 1] - cuts[lane];
      part.data = tensors.of(rank).data() + cuts[lane];
      if (way.feedback) part.residual = states[rank].data() + cuts[lane];
      part.state_pitch = way.count;
      part.scans_left = &scans_left[rank];
      (void)lanes[lane].submit(rank, part);
    }
  }
  const auto idle = [](const SimNet& lane) { return lane.idle(); };
  for (size_t turn = 0; turn < 1'000'000 && !std::ranges::all_of(lanes, idle); ++turn) {
    if (!lanes[turn % kLanes].idle()) (void)lanes[turn % kLanes].step(60 * kSecond);
  }
  for (const SimNet& lane : lanes) ASSERT_TRUE(lane.idle() && all_succeeded(lane));
  for (const auto& left : scans_left) EXPECT_EQ(left, 0U);
}

TEST_P(AllCodecs, GiveTheSameOnAnyNumberOfLanes) {
  const Codec codec = find_codec(GetParam());
  if (!codec.row().exact_sums && codec.row().passes == 0) return;
  for (const std::string strategy : {"ring", "direct"}) {
    const TestCase way = {
        .strategy = strategy, .world = 4, .count = 30'011, .feedback = codec.has_feedback() && codec.row().is_additive};
    if (!may(codec, way)) continue;
    SCOPED_TRACE(strategy);
    const SimInputs inputs = inputs_of(way, 10);
    SimTensors tensors(way.world, way.count);
    std::vector<Floats> states(way.world, Floats(codec.states() * way.count));
    for (unsigned i = 0; i < way.world; ++i) inputs.fill(i, tensors.of(i));
    run_lanes(codec, way, tensors, states);
    for (unsigned i = 1; i < way.world; ++i) {
      EXPECT_EQ(std::memcmp(tensors.of(i).data(), tensors.of(0).data(), way.count * sizeof(float)), 0);
    }
    if (!codec.row().exact_sums) continue;
    Rounds whole(GetParam(), way);
    whole.run(1);
    EXPECT_EQ(std::memcmp(whole.outcome().data(), tensors.of(0).data(), way.count * sizeof(float)), 0);
  }
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(, AllCodecs, testing::ValuesIn(names()), name_of);

}  // namespace
}  // namespace gradlane::test::codecs_test
