// exchange_test.cc - tests of results for all worlds, counts, codecs, kinds and types; many at once; refusals
#include "collectives/exchange/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "tests/collectives/exchange/exchange_fixture.h"

namespace gradlane::test::exchange_test {
namespace {

const std::vector<std::string> kCodecs = {
    "raw", "bf16", "fp16", "inceptionn:10", "inceptionn:8", "inceptionn:10,truncate", "fixed:10", "fixed:4"};

class World : public testing::TestWithParam<unsigned> {
 protected:
  [[nodiscard]] unsigned world() const { return GetParam(); }

  [[nodiscard]] SimConfig config(std::span<const JobSpec> specs) const {
    SimConfig config;
    config.nodes = world();
    config.seed = world();
    config.exchange.max_bytes = largest(specs, world());
    return config;
  }

  // Returns counts of elements: 0, numbers up to the number of ranks, and one that ends inside a granule.
  [[nodiscard]] std::vector<size_t> counts() const {
    std::vector<size_t> list = {0, 1, world() - 1, world(), 1237};
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
  }

  void run_all(std::vector<JobSpec> specs) const {
    SimNet net(config(specs));
    std::vector<Job> jobs = make_jobs(specs, world(), 10 * world());
    EXPECT_TRUE(run(net, jobs));
    EXPECT_TRUE(no_retransmits(net));
    EXPECT_TRUE(all_given_back(net));
  }
};

TEST_P(World, AllCodecsAndKinds) {
  const std::vector<size_t> counts = this->counts();
  const size_t kinds = all_kinds(world(), 1, 1, "raw").size();
  std::vector<JobSpec> specs;
  for (const auto& [codec, count, kind] : combinations<3>({kCodecs.size(), counts.size(), kinds})) {
    specs.push_back(all_kinds(world(), counts[count], counts[count], kCodecs[codec])[kind]);
  }
  run_all(specs);
}

// If one poll does not finish a tensor, the next one follows at once.
TEST(Exchange, AWorldOfOneDoesNotSleepOverALargeTensor) {
  for (const OpKind kind : {OpKind::kAllToAll, OpKind::kAllReduce}) {
    const JobSpec spec{.kind = kind, .count = 600'000, .codec = "raw"};
    SimConfig config;
    config.nodes = 1;
    config.exchange.strategies = find_strategies("direct");
    SimNet net(config);
    std::vector<Job> jobs = make_jobs(std::span(&spec, 1), 1, 1);
    EXPECT_TRUE(run(net, jobs, kMillisecond)) << op_name(kind);
  }
}

TEST_P(World, AllTypesAndKinds) {
  using enum ElementType;
  const std::vector<ElementType> types = {kFloat64, kFloat16, kBfloat16, kInt32, kInt64, kBytes};
  const std::vector<size_t> counts = this->counts();
  const size_t kinds = all_kinds(world(), 1, 1, "raw").size();
  std::vector<JobSpec> specs;
  for (const auto& [type, count, kind] : combinations<3>({types.size(), counts.size(), kinds})) {
    specs.push_back(all_kinds(world(), counts[count], counts[count], "raw")[kind]);
    specs.back().type = types[type];
    if (specs.back().average && !is_floating(types[type])) specs.back().average = false;
  }
  run_all(specs);
}

// The elements are NaN, Inf, denormals, boundaries and random bits, at odd addresses.
TEST_P(World, WildElements) {
  using enum ElementType;
  std::vector<JobSpec> specs;
  const auto add = [&](ElementType type, const std::string& codec) {
    for (JobSpec spec : all_kinds(world(), 2111, 701, codec)) {
      spec.type = type;
      spec.fill = Fill::kWild;
      if (!spec.average || (type != kInt32 && type != kInt64 && type != kBytes)) specs.push_back(spec);
    }
  };
  for (const std::string& codec : kCodecs) add(kFloat32, codec);
  for (const ElementType type : {kFloat64, kFloat16, kBfloat16, kInt32, kInt64, kBytes}) add(type, "raw");
  for (const ElementType type : {kFloat16, kBfloat16}) add(type, "pack");
  run_all(specs);
}

// Elements of 16 bits in few bytes. Their sums and copies have the bits of uncompressed ones.
TEST_P(World, PackedHalves) {
  using enum ElementType;
  std::vector<JobSpec> specs;
  for (const ElementType type : {kFloat16, kBfloat16}) {
    for (const size_t count : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{20'011}}) {
      for (JobSpec spec : all_kinds(world(), count, count / world(), "pack")) {
        spec.type = type;
        specs.push_back(spec);
      }
    }
  }
  run_all(specs);
}

TEST_P(World, LargeTensors) {
  for (const std::string codec : {"raw", "bf16", "inceptionn:10", "fixed:10"}) {
    run_all({{.kind = OpKind::kAllReduce, .count = thorough() ? size_t{1'000'003} : size_t{100'003}, .codec = codec}});
  }
}

// Packets reach their limit of elements before their limit of bytes. So blocks may end, and runs may be cut, anywhere
// in a packet.
TEST_P(World, MoreElementsThanBytes) {
  for (const size_t count : {size_t{70'000}, size_t{100'003}}) {
    const JobSpec few = {.kind = OpKind::kAllReduce, .count = count, .codec = "fixed:5", .scale = 1e-5};
    run_all({few, few, few});
  }
}

// The next operation adds the rounding errors of the previous one.
TEST_P(World, ErrorFeedback) {
  for (const std::string codec : {"fixed:10", "fixed:4"}) {
    for (const Fill fill : {Fill::kGradients, Fill::kWild}) {
      const JobSpec reduce = {
          .kind = OpKind::kAllReduce, .count = 1237, .codec = codec, .feedback = true, .fill = fill};
      std::vector<JobSpec> specs(4, reduce);
      specs[1].average = true;
      specs[2].kind = OpKind::kReduceScatter;
      specs[3].count = 1;
      SimNet net(config(specs));
      std::vector<Job> jobs = make_jobs(specs, world(), 3);
      for (unsigned round = 0; round < 4; ++round) {
        for (Job& job : jobs) job.renew(100 * round + job.bytes());
        ASSERT_TRUE(run(net, jobs)) << "round " << round;
      }
    }
  }
}

// Operations of all kinds are in flight at once.
TEST_P(World, ManyAtOnce) {
  using enum ElementType;
  const JobSpec specs[] = {
      {.kind = OpKind::kAllReduce, .count = 100'003, .codec = "fixed:10"},
      {.kind = OpKind::kBroadcast, .count = 5'000, .type = kBytes, .root = world() - 1},
      {.kind = OpKind::kAllReduce, .count = 1, .type = kInt64},
      {.kind = OpKind::kReduceScatter, .count = 3'000, .codec = "raw", .average = true},
      {.kind = OpKind::kAllGather, .count = 2'000, .codec = "bf16"},
      {.kind = OpKind::kBarrier},
      {.kind = OpKind::kAllReduce, .count = 0},
      {.kind = OpKind::kAllReduce, .count = 20'000, .codec = "inceptionn:8", .fill = Fill::kWild},
      {.kind = OpKind::kAllReduce, .count = 7'777, .codec = "fixed:4", .feedback = true},
      {.kind = OpKind::kBroadcast, .count = 33'333, .codec = "inceptionn:10"},
      {.kind = OpKind::kAllGather, .count = 1'111, .type = kFloat16, .fill = Fill::kWild},
      {.kind = OpKind::kReduceScatter, .count = 999, .type = kFloat64, .average = true},
      {.kind = OpKind::kAllReduce, .count = 10'000, .codec = "raw", .average = true},
      {.kind = OpKind::kBarrier},
      {.kind = OpKind::kAllReduce, .count = 12'345, .type = kInt32},
      {.kind = OpKind::kAllReduce, .count = 31, .codec = "fp16"},
  };
  static_assert(std::size(specs) == 16);
  run_all({std::begin(specs), std::end(specs)});
}

INSTANTIATE_TEST_SUITE_P(Exchange, World,
                         testing::ValuesIn(thorough() ? std::vector{1U, 2U, 3U, 4U, 5U, 8U, 16U}
                                                      : std::vector{1U, 2U, 3U, 5U, 8U}),
                         testing::PrintToStringParamName());

// ---- Independence

Nanos ended(const SimNet& net, unsigned node, uint64_t id) {
  for (const SimCompletion& each : net.node(node).completions()) {
    if (each.id == id) return each.failure ? kNever : each.time;
  }
  return kNever;
}

TEST(Exchange, SmallOnesOvertakeALargeOne) {
  for (const unsigned world : {2U, 4U, 8U}) {
    SimConfig config;
    config.nodes = world;
    SimNet net(config);
    std::vector<JobSpec> specs(4);
    specs[0] = {.kind = OpKind::kAllReduce, .count = 2'000'000};
    specs[1] = {.kind = OpKind::kAllReduce, .count = 10};
    specs[2] = {.kind = OpKind::kBarrier};
    specs[3] = {.kind = OpKind::kBroadcast, .count = 100, .root = 1};
    std::vector<Job> jobs = make_jobs(specs, world, 1);
    ASSERT_TRUE(run(net, jobs));
    for (unsigned i = 0; i < world; ++i) {
      for (uint64_t id = 1; id < specs.size(); ++id) {
        EXPECT_LT(ended(net, i, id), ended(net, i, 0) / 2)
            << "world " << world << ", node " << i << ", operation " << id;
      }
    }
  }
}

// ---- Refusals

constexpr auto kNone = Exchange::Refusal::kNone;
constexpr auto kFull = Exchange::Refusal::kFull;
constexpr auto kTooLarge = Exchange::Refusal::kTooLarge;
constexpr auto kBad = Exchange::Refusal::kBad;

TEST(Exchange, RefusesWhatIsNoOperation) {
  SimConfig config;
  config.nodes = 4;
  config.exchange.max_bytes = 4096;
  config.exchange.operations = 100;
  SimNet net(config);
  std::vector<float> floats(1024), residual(1024);
  const auto fixed = find_codec("fixed:10");
  const auto bf16 = find_codec("bf16");
  using enum OpKind;
  using enum ElementType;
  const Operation good = {.count = 1024, .data = floats.data(), .codec = fixed};
  const auto with = [&](auto change) {
    Operation operation = good;
    change(operation);
    return operation;
  };
  using Op = Operation;
  const struct {
    const char* what;
    Exchange::Refusal refusal;
    Operation operation;
  } cases[] = {
      {"largest", kNone, good},
      {"one too many", kTooLarge, with([](Op& op) { op.count = 1025; })},
      {"as many as can be said", kTooLarge, with([](Op& op) { op.count = ~size_t{0}; })},
      {"bytes overflow", kTooLarge, with([](Op& op) { op.count = (~size_t{0} >> 2) + 2; })},
      {"doubles", kTooLarge, with([](Op& op) { op.type = kFloat64; })},
      {"largest doubles", kNone, with([](Op& op) { op.type = kFloat64, op.count = 512; })},
      {"largest share", kNone, with([](Op& op) { op.kind = kReduceScatter, op.count = 256; })},
      {"share", kTooLarge, with([](Op& op) { op.kind = kReduceScatter, op.count = 257; })},
      {"gathered share", kTooLarge, with([](Op& op) { op.kind = kAllGather, op.count = 257; })},
      {"shares overflow", kTooLarge, with([](Op& op) { op.kind = kAllGather, op.count = ~size_t{0} / 4 + 2; })},
      {"no data", kBad, with([](Op& op) { op.data = nullptr; })},
      {"no data, none needed", kNone, with([](Op& op) { op.data = nullptr, op.count = 0; })},
      {"last root", kNone, with([](Op& op) { op.kind = kBroadcast, op.root = 3; })},
      {"no such root", kBad, with([](Op& op) { op.kind = kBroadcast, op.root = 4; })},
      {"root of another kind", kNone, with([](Op& op) { op.root = 4; })},
      {"average", kNone, with([](Op& op) { op.reduction = Reduction::kAverage; })},
      {"average of halves", kNone, with([](Op& op) { op.reduction = Reduction::kAverage, op.type = kFloat16; })},
      {"average of integers", kBad, with([](Op& op) { op.reduction = Reduction::kAverage, op.type = kInt32; })},
      {"average of long integers", kBad,
       with([](Op& op) { op.reduction = Reduction::kAverage, op.type = kInt64, op.count = 1; })},
      {"average of bytes", kBad, with([](Op& op) { op.reduction = Reduction::kAverage, op.type = kBytes; })},
      {"average of what is not added", kBad,
       with([](Op& op) { op.reduction = Reduction::kAverage, op.kind = kBroadcast; })},
      {"feedback", kNone, with([&](Op& op) { op.residual = residual.data(); })},
      {"feedback without", kBad, with([&](Op& op) { op.residual = residual.data(), op.codec = bf16; })},
      {"feedback of doubles", kBad,
       with([&](Op& op) { op.residual = residual.data(), op.type = kFloat64, op.count = 1; })},
      {"feedback of a broadcast", kBad, with([&](Op& op) { op.residual = residual.data(), op.kind = kBroadcast; })},
      {"feedback by default, which is raw", kBad,
       with([&](Op& op) { op.residual = residual.data(), op.codec.reset(); })},
      {"no kind", kBad, with([](Op& op) { op.kind = static_cast<OpKind>(static_cast<int>(kLastKind) + 1); })},
      {"no type", kBad, with([](Op& op) { op.type = static_cast<ElementType>(7); })},
      {"barrier", kNone, barrier()},
  };
  uint64_t next = 0;
  for (const auto& c : cases) {
    const Exchange::Submitted submitted = net.try_submit(0, c.operation);
    EXPECT_EQ(submitted.refusal, c.refusal) << c.what;
    if (submitted.refusal == kNone) {
      EXPECT_EQ(submitted.id, next++) << c.what;
    }
  }
}

// The exchange takes four times the configured number, because these operations are small. It takes another one when
// the oldest has ended and its completion was read.
TEST(Exchange, RefusesMoreThanConfigured) {
  SimConfig config;
  config.nodes = 2;
  config.exchange.operations = 2;
  SimNet net(config);
  for (unsigned i = 0; i < 8; ++i) EXPECT_EQ(net.try_submit(0, barrier()).id, i);
  EXPECT_EQ(net.try_submit(0, barrier()).refusal, kFull);
  net.run_until(kSecond);
  EXPECT_EQ(net.try_submit(0, barrier()).refusal, kFull);
  for (unsigned i = 0; i < 3; ++i) (void)net.submit(1, barrier());
  net.run_until(2 * kSecond);
  EXPECT_EQ(net.node(0).completions().size(), 3U);
  for (unsigned i = 8; i < 11; ++i) EXPECT_EQ(net.try_submit(0, barrier()).id, i);
  EXPECT_EQ(net.try_submit(0, barrier()).refusal, kFull);
}

// ---- Ranks that come late

TEST(Exchange, NobodyPassesABarrierBeforeTheLast) {
  for (const unsigned world : {2U, 3U, 4U, 8U, 16U}) {
    for (const unsigned last : {0U, world / 2, world - 1}) {
      SimConfig config;
      config.nodes = world;
      SimNet net(config);
      for (unsigned round = 0; round < 3; ++round) {
        for (unsigned i = 0; i < world; ++i) {
          if (i != last) (void)net.submit(i, barrier());
        }
        net.run_until(net.now() + kSecond / 2);
        for (unsigned i = 0; i < world; ++i) ASSERT_EQ(net.node(i).completions().size(), round);
        (void)net.submit(last, barrier());
        ASSERT_TRUE(net.run_until_idle(net.now() + kMillisecond));
      }
      EXPECT_TRUE(no_retransmits(net));
    }
  }
}

TEST(Exchange, OneRankASecondLate) {
  for (const unsigned world : {2U, 3U, 4U, 8U, 16U}) {
    for (const unsigned last : {0U, world - 1}) {
      SimConfig config;
      config.nodes = world;
      SimNet net(config);
      const auto specs = all_kinds(world, 30'000, 10'000, "fixed:10");
      std::vector<Job> jobs = make_jobs(specs, world, last);
      for (unsigned i = 0; i < world; ++i) {
        for (Job& job : jobs) {
          if (i != last) (void)net.submit(i, job.operation(i));
        }
      }
      net.run_until(kSecond);
      for (Job& job : jobs) (void)net.submit(last, job.operation(last));
      ASSERT_TRUE(net.run_until_idle(2 * kSecond));
      for (const Job& job : jobs) EXPECT_TRUE(job.right());
      EXPECT_TRUE(no_retransmits(net));
      EXPECT_EQ(net.count(Counter::kOperationsDone), world * jobs.size());
    }
  }
}

// A rank that is late for every operation causes no retransmissions.
TEST(Exchange, StartsAtRandomTimes) {
  const unsigned world = 5;
  SimConfig config;
  config.nodes = world;
  SimNet net(config);
  const auto specs = all_kinds(world, 3'000, 1'000, "raw");
  std::vector<Job> jobs = make_jobs(specs, world, 1);
  Random random(7);
  std::vector<size_t> submitted(world);
  while (std::any_of(submitted.begin(), submitted.end(), [&](size_t n) { return n != jobs.size(); })) {
    const auto i = static_cast<unsigned>(random.below(world));
    if (submitted[i] != jobs.size()) (void)net.submit(i, jobs[submitted[i]++].operation(i));
    net.run_until(net.now() + random.below(20 * kMillisecond));
  }
  ASSERT_TRUE(net.run_until_idle(net.now() + kSecond));
  for (const Job& job : jobs) EXPECT_TRUE(job.right());
  EXPECT_TRUE(no_retransmits(net));
}

}  // namespace
}  // namespace gradlane::test::exchange_test
