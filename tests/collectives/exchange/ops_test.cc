// ops_test.cc - tests of operations that need links between all ranks: reduce, gather, scatter, all-to-all
#include <gtest/gtest.h>

#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/collectives/exchange/exchange_fixture.h"
#include "tests/collectives/exchange/failure_fixture.h"

namespace gradlane::test::ops_test {
namespace {

const std::vector<unsigned> kWorlds =
    thorough() ? std::vector{1U, 2U, 3U, 4U, 5U, 8U, 16U} : std::vector{1U, 2U, 3U, 5U};
constexpr OpKind kKinds[] = {OpKind::kReduce, OpKind::kGather, OpKind::kScatter, OpKind::kAllToAll};

SimConfig switched(unsigned world, const std::string& strategies = "direct", size_t max_bytes = size_t{1} << 20) {
  SimConfig config;
  config.nodes = world;
  config.seed = world;
  config.topology = SimTopology::kSwitch;
  config.exchange.strategies = find_strategies(strategies);
  config.exchange.max_bytes = max_bytes;
  config.exchange.operations = 4;  // fewer operations need less memory to be cleared
  return config;
}

Faults bad_weather() {
  return {.loss = 0.1, .duplicate = 0.05, .reorder = 0.1, .corrupt = 0.05, .busy = 0.05, .reorder_delay = 300'000};
}

TEST(Ops, CountsAroundAGranule) {
  for (const unsigned world : kWorlds) {
    SimNet net(switched(world));
    std::vector<JobSpec> specs;
    for (const std::string codec : {"raw", "fixed:10"}) {
      for (const size_t count : {size_t{31}, size_t{32}, size_t{33}}) {
        for (const JobSpec& spec : direct_kinds(world, count, count, codec)) specs.push_back(spec);
      }
    }
    std::vector<Job> jobs = make_jobs(specs, world, world);
    EXPECT_TRUE(run(net, jobs));
    EXPECT_TRUE(no_retransmits(net));
    EXPECT_TRUE(all_given_back(net));
  }
}

TEST(Ops, LargeInBadWeather) {
  const size_t count = thorough() ? 150'001 : 20'011;
  for (const unsigned world : {2U, 5U}) {
    SimConfig config = switched(world);
    config.faults = bad_weather();
    SimNet net(config);
    std::vector<JobSpec> specs = direct_kinds(world, count, count / world, "inceptionn:10");
    for (const OpKind kind : kKinds) {
      specs.push_back({.kind = kind, .count = count / world, .type = ElementType::kBfloat16, .fill = Fill::kWild});
      specs.push_back({.kind = kind, .count = count / world, .codec = "pack", .type = ElementType::kBfloat16});
    }
    std::vector<Job> jobs = make_jobs(specs, world, 7);
    EXPECT_TRUE(run(net, jobs));
  }
}

TEST(Ops, ReduceWithErrorFeedback) {
  for (const unsigned world : kWorlds) {
    JobSpec spec = {
        .kind = OpKind::kReduce, .count = 1237, .codec = "fixed:10", .root = world / 2, .feedback = true, .strategy{}};
    std::vector<JobSpec> specs = {spec, spec};
    specs[1].average = true;
    SimNet net(switched(world));
    std::vector<Job> jobs = make_jobs(specs, world, 3);
    for (unsigned round = 0; round < 3; ++round) {
      for (Job& job : jobs) job.renew(100 * round + job.bytes());
      ASSERT_TRUE(run(net, jobs));
    }
  }
}

TEST(Ops, ReduceToTheLeastAndTheGreatest) {
  std::vector<JobSpec> specs;
  for (const Reduction pick : {Reduction::kMin, Reduction::kMax}) {
    specs.push_back({.kind = OpKind::kReduce, .count = 1237, .codec = "fixed:10", .fill = Fill::kWild, .pick = pick});
    specs.push_back({.kind = OpKind::kReduce, .count = 1237, .type = ElementType::kInt32, .root = 2, .pick = pick});
  }
  SimNet net(switched(3));
  std::vector<Job> jobs = make_jobs(specs, 3, 3);
  EXPECT_TRUE(run(net, jobs));
}

// Operations that only `direct` supports run among others that use the first strategy. None of the operations names a
// strategy.
TEST(Ops, ByDirectWhereThatIsAllowed) {
  for (const char* const strategies : {"ring,direct", "rings:2,direct", "aggregator:1,direct"}) {
    SimNet net(switched(4, strategies));
    std::vector<JobSpec> specs;
    const std::vector<JobSpec> ours = direct_kinds(4, 1237, 311, "bf16");
    std::vector<JobSpec> others = all_kinds(4, 1237, 311, "fixed:10");
    std::erase_if(others, [](const JobSpec& spec) { return spec.kind == OpKind::kAllReduce; });
    for (size_t i = 0; i < ours.size(); ++i) {
      specs.push_back(ours[i]);
      specs.push_back(others[i % others.size()]);
    }
    std::vector<Job> jobs = make_jobs(specs, 4, 5);
    EXPECT_TRUE(run(net, jobs)) << strategies;
  }
}

// ---- Refusals

class OpsRefusal : public testing::Test {
 protected:
  // Submits the operation to an exchange in a world of 4 that allows these strategies.
  static Exchange::Refusal submit(const Operation& operation, const std::string& strategies = "ring,direct") {
    SimConfig config = switched(4, strategies, 4096);
    config.exchange.operations = 1;  // fewer operations need less memory
    SimNet net(config);
    return net.node(0).exchange().submit(operation, net.now()).refusal;
  }
  Operation operation(OpKind kind) {
    Operation it;
    it.kind = kind;
    it.count = 8;
    it.data = data_.data();
    if (kind == OpKind::kAllToAll) it.out = out_.data();
    return it;
  }

  std::array<float, 64> data_{};
  std::array<float, 64> out_{};
};

TEST_F(OpsRefusal, WithoutDirect) {
  using enum Exchange::Refusal;
  for (const OpKind kind : kKinds) {
    Operation it = operation(kind);
    EXPECT_EQ(submit(it), kNone);
    EXPECT_EQ(submit(it, "ring,rings:2,aggregator:0"), kStrategy);
    it.strategy = find_strategy("ring");
    EXPECT_EQ(submit(it), kStrategy);
    it.strategy = find_strategy("rings:2");
    EXPECT_EQ(submit(it, "ring,rings:2,direct"), kStrategy);
    it.strategy = find_strategy("direct");
    EXPECT_EQ(submit(it), kNone);
    EXPECT_EQ(submit(it, "ring"), kStrategy);
  }
}

TEST_F(OpsRefusal, OfWhatIsNotThere) {
  using enum Exchange::Refusal;
  for (const OpKind kind : kKinds) {
    Operation it = operation(kind);
    it.root = 4;
    EXPECT_EQ(submit(it), kind == OpKind::kAllToAll ? kNone : kBad);
    it.root = 3;
    EXPECT_EQ(submit(it), kNone);
    it.data = nullptr;
    EXPECT_EQ(submit(it), kBad);
    it = operation(kind);
    it.reduction = Reduction::kAverage;
    EXPECT_EQ(submit(it), kind == OpKind::kReduce ? kNone : kBad);
    it = operation(kind);
    it.codec = find_codec("fixed:10");
    it.residual = data_.data() + 32;
    EXPECT_EQ(submit(it), kind == OpKind::kReduce ? kNone : kBad);
    it = operation(kind);
    it.count = size_t{1} << 40;
    EXPECT_EQ(submit(it), kTooLarge);
  }
}

TEST_F(OpsRefusal, OfOutputs) {
  using enum Exchange::Refusal;
  Operation it = operation(OpKind::kAllToAll);
  it.out = nullptr;
  EXPECT_EQ(submit(it), kBad);
  it.count = 0;
  EXPECT_EQ(submit(it), kNone);
  it.count = 8;
  for (const size_t apart : {size_t{0}, size_t{1}, size_t{31}}) {
    it.out = data_.data() + apart;
    EXPECT_EQ(submit(it), kBad) << apart;
    std::swap(it.data, it.out);
    EXPECT_EQ(submit(it), kBad) << apart;
    it.data = data_.data();
  }
  it.out = data_.data() + 32;
  EXPECT_EQ(submit(it), kNone);
  it.pitch = 9;
  EXPECT_EQ(submit(it), kBad);
  for (const OpKind kind : {OpKind::kReduce, OpKind::kGather, OpKind::kScatter, OpKind::kAllReduce}) {
    it = operation(kind);
    it.out = out_.data();
    EXPECT_EQ(submit(it), kBad);
  }
}

// ---- Ranks that disagree, or do not come

// Ranks notice that their operations differ. A rank that has got all that it waits for may have finished by then.
TEST(Ops, RootsMustAgree) {
  for (const OpKind kind : {OpKind::kReduce, OpKind::kGather, OpKind::kScatter}) {
    SimNet net(switched(4));
    std::array<float, 32> data{};
    for (unsigned rank = 0; rank < 4; ++rank) {
      Operation it;
      it.kind = kind;
      it.count = 8;
      it.data = data.data();
      it.root = rank == 3 ? 1 : 2;
      net.submit(rank, it);
    }
    ASSERT_TRUE(net.run_until_idle(20 * kSecond));
    for (const unsigned rank : {2U, 3U}) {
      const Failure failure = net.node(rank).completions().front().failure;
      EXPECT_EQ(failure.code, FailureCode::kMismatch) << op_name(kind);
      EXPECT_EQ(failure.field, Field::kRoot);
    }
  }
}

// A rank names the rank that it waits for, although that is neither its successor nor its predecessor.
TEST(Ops, NamesWhoNeverSubmits) {
  for (const OpKind kind : kKinds) {
    SimNet net(switched(5, "direct", size_t{4} << 20));
    JobSpec spec = {.kind = kind, .count = 100'000, .codec = "raw", .root = kind == OpKind::kScatter ? 2U : 0U};
    Job job(spec, 5, 1);
    for (const unsigned rank : {0U, 1U, 3U, 4U}) {
      Operation it = job.operation(rank);
      it.timeout = rank == 0 ? kSecond : 60 * kSecond;  // so that rank 0 is the first to report it
      net.submit(rank, it);
    }
    const auto over = [&] { return !net.node(0).completions().empty(); };
    ASSERT_TRUE(net.run_until(over, net.now() + 3 * kSecond)) << op_name(kind);
    const Failure failure = net.node(0).completions().front().failure;
    EXPECT_EQ(failure.code, FailureCode::kStuck) << op_name(kind);
    EXPECT_EQ(failure.rank, 2U) << op_name(kind);
  }
}

// Deliveries need no credit. A packet that grants credit for them is refused, whatever block it names.
TEST(Ops, GrantsAreNotForDeliveries) {
  for (const OpKind kind : {OpKind::kGather, OpKind::kScatter, OpKind::kAllToAll}) {
    SimNet net(switched(3));
    LinkHeader header{};
    RunHeader start{};
    net.set_tap([&](unsigned from, unsigned to, std::span<const uint8_t> packet) {
      if (from != 0 || to != 1 || !is_data(packet)) return;
      header = load<LinkHeader>(packet.data());
      start = load<RunHeader>(packet.data() + sizeof(LinkHeader));
    });
    Job job({.kind = kind, .count = 1237, .codec = "raw"}, 3, 1);
    for (const unsigned rank : {0U, 1U}) net.submit(rank, job.operation(rank));
    // Everything that can be sent without rank 2 was sent.
    (void)net.run_until([] { return false; }, net.now() + 200 * kMillisecond);
    ASSERT_EQ(header.kind, PacketKind::kData) << op_name(kind);
    for (uint8_t block = 0; block < 3; ++block) {
      RunHeader grant = start;
      grant.phase = Phase::kCredit;
      grant.first = 1000;
      grant.block = block;
      grant.count = grant.bytes = 0;
      Bytes runs;
      append_run(runs, grant, Bytes());
      LinkHeader next = header;
      ++next.sequence;
      next.echo = 0;
      net.inject(1, 0, make_packet(next, runs));
      (void)net.run_until([] { return false; }, net.now() + kMicrosecond);
      EXPECT_EQ(net.node(1).exchange().counters()[Counter::kBadRoute], block + 1U) << op_name(kind);
    }
    net.submit(2, job.operation(2));
    ASSERT_TRUE(net.run_until_idle(20 * kSecond));
    EXPECT_TRUE(all_succeeded(net));
    EXPECT_TRUE(job.right());
  }
}

// If a rank gets less credit than before, its limit stays.
TEST(Ops, ASmallerGrantTakesNothingBack) {
  constexpr unsigned kOwner = 1;
  constexpr size_t kGranule = 32;  // elements of fp32
  LinkHeader header{};             // header of the owner's latest packet to rank 0
  RunHeader start{};               // header of the first run of that packet
  size_t sent = 0;                 // number of elements of the owner's block that rank 0 has sent
  SimNet net(switched(3, "direct", size_t{4} << 20));
  net.set_tap([&](unsigned from, unsigned to, std::span<const uint8_t> packet) {
    if (!is_data(packet)) return;
    const auto run = load<RunHeader>(packet.data() + sizeof(LinkHeader));
    if (from == kOwner && to == 0) {
      header = load<LinkHeader>(packet.data());
      start = run;
    }
    if (from != 0 || to != kOwner || run.phase != Phase::kReduce) return;
    sent = std::max(sent, run.first * kGranule + run.count);
  });
  Job job({.kind = OpKind::kAllReduce, .count = 300'000, .codec = "raw"}, 3, 1);
  for (const unsigned rank : {0U, kOwner}) net.submit(rank, job.operation(rank));
  // Rank 2 has not submitted, so rank 0 sends only what needs no credit.
  net.run_until(net.now() + 200 * kMillisecond);
  const size_t without_grant = sent;
  ASSERT_GT(without_grant, 0U);
  ASSERT_LT(without_grant, 80'000U);
  const auto grant = [&](size_t elements) {
    RunHeader run = start;
    run.phase = Phase::kCredit;
    run.first = static_cast<uint32_t>(elements / kGranule);
    run.block = kOwner;
    run.count = run.bytes = 0;
    Bytes runs;
    append_run(runs, run, Bytes());
    ++header.sequence;
    header.echo = 0;
    net.inject(0, kOwner, make_packet(header, runs));
  };
  grant(without_grant + 8192);  // few enough for one window of the link, as the owner acknowledges none of them
  grant(without_grant + 4096);
  net.run_until(net.now() + 100 * kMillisecond);
  EXPECT_EQ(sent, without_grant + 8192);
}

// A rank aborts in the middle of deliveries. The next operation must be right, and all buffers must be given back.
TEST(Ops, AbortedInTheMiddle) {
  for (const OpKind kind : kKinds) {
    SimNet net(switched(4, "direct", size_t{4} << 20));
    Job job({.kind = kind, .count = 200'000, .codec = "raw"}, 4, 1);
    uint64_t id = 0;
    for (unsigned rank = 0; rank < 4; ++rank) id = net.submit(rank, job.operation(rank));
    (void)net.run_until([&] { return net.count(Counter::kDelivered) > 100; }, net.now() + kSecond);
    net.abort(3, id);
    ASSERT_TRUE(net.run_until_idle(20 * kSecond));
    for (unsigned rank = 0; rank < 4; ++rank) {
      const Failure failure = net.node(rank).completions().front().failure;
      EXPECT_EQ(failure.code, FailureCode::kAborted) << op_name(kind) << ", rank " << rank;
      EXPECT_EQ(failure.rank, 3U);
    }
    Job next({.kind = kind, .count = 1237, .codec = "raw"}, 4, 2);
    for (unsigned rank = 0; rank < 4; ++rank) net.submit(rank, next.operation(rank));
    ASSERT_TRUE(net.run_until_idle(20 * kSecond));
    EXPECT_TRUE(next.right()) << op_name(kind);
    EXPECT_TRUE(all_given_back(net));
  }
}

}  // namespace
}  // namespace gradlane::test::ops_test
