// loss_test.cc - tests that results do not depend on what the network loses, duplicates, delays and damages, or where
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "tests/collectives/exchange/exchange_fixture.h"

namespace gradlane::test::loss_test {
namespace {

const unsigned kSeeds = thorough() ? 4 : 1;

SimConfig config_for(unsigned world, uint64_t seed = 1) {
  SimConfig config;
  config.nodes = world;
  config.seed = seed;
  config.exchange.max_bytes = size_t{1} << 20;
  return config;
}

// ---- Random faults

class Loss : public testing::TestWithParam<std::tuple<unsigned, std::string>> {
 protected:
  [[nodiscard]] static unsigned world() { return std::get<0>(GetParam()); }
  [[nodiscard]] static std::string codec() { return std::get<1>(GetParam()); }

  static void run_with(const Faults& faults) {
    uint64_t damaged = 0;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      SimConfig config = config_for(world(), 1000 * seed + world());
      config.faults = faults;
      SimNet net(config);
      const auto specs = all_kinds(world(), 20'003, 20'003 / world(), codec());
      std::vector<Job> jobs = make_jobs(specs, world(), seed);
      EXPECT_TRUE(run(net, jobs)) << "seed " << seed;
      EXPECT_TRUE(all_given_back(net)) << "seed " << seed;
      if (faults.loss > 0.01) {
        EXPECT_GT(net.count(Counter::kRetransmitSack), 0U);
        EXPECT_GT(net.count(Counter::kDuplicate), 0U);
      }
      damaged += net.count(Counter::kBadCrc) + net.count(Counter::kTooShort) + net.count(Counter::kBadMagic);
    }
    if (faults.corrupt > 0.005 && kSeeds > 1) {  // one seed has too few packets to be sure
      EXPECT_GT(damaged, 0U);
    }
  }
};

Faults faults_of(double loss, double corrupt) {
  return {.loss = loss, .duplicate = 0.01, .reorder = 0.05, .corrupt = corrupt, .busy = 0};
}

TEST_P(Loss, None) { run_with(faults_of(0, 0.001)); }
TEST_P(Loss, OneInAThousand) { run_with(faults_of(0.001, 0.001)); }
TEST_P(Loss, OneInAHundred) { run_with(faults_of(0.01, 0.02)); }
TEST_P(Loss, OneInTwenty) { run_with(faults_of(0.05, 0.02)); }
TEST_P(Loss, OneInFive) { run_with(faults_of(0.2, 0.02)); }

// The network sometimes refuses to send a packet, or refuses most of them.
TEST_P(Loss, BusyOwner) {
  run_with({.busy = 0.01});
  run_with({.loss = 0.01, .reorder = 0.05, .busy = 0.3});
  run_with({.busy = 0.9});
}

// Any packet may arrive after all later ones.
TEST_P(Loss, WildReordering) {
  run_with({.duplicate = 0.2, .reorder = 0.8, .reorder_delay = 50 * kMicrosecond});
  run_with({.duplicate = 0.05, .reorder = 0.5, .reorder_delay = 5 * kMillisecond});
}

std::string loss_name(const testing::TestParamInfo<std::tuple<unsigned, std::string>>& info) {
  std::string name = std::to_string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

std::vector<std::tuple<unsigned, std::string>> loss_cases() {
  if (!thorough()) return {{2, "raw"}, {2, "fixed:10"}, {3, "inceptionn:10"}, {4, "raw"}, {8, "fixed:10"}};
  std::vector<std::tuple<unsigned, std::string>> cases;
  for (const unsigned world : {2U, 3U, 4U, 8U, 16U}) {
    for (const char* const codec : {"raw", "fixed:10", "inceptionn:10"}) cases.emplace_back(world, codec);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Exchange, Loss, testing::ValuesIn(loss_cases()), loss_name);

// ---- Losses at chosen places

// One operation whose packets are lost as `plan` says. Until the first loss, everything is as in a run without losses.
// So sequence numbers are known in advance.
class Chosen : public testing::TestWithParam<unsigned> {
 protected:
  [[nodiscard]] static unsigned world() { return GetParam(); }

  struct Outcome {
    Dropper dropper;
    uint64_t retransmits = 0;
  };

  template <typename Plan>
  static Outcome run_one(const JobSpec& spec, size_t window, Plan plan) {
    SimConfig config = config_for(world());
    config.exchange.window = window;
    SimNet net(config);
    Outcome outcome;
    plan(outcome.dropper);
    net.set_filter([&outcome](unsigned from, unsigned to, auto packet) { return outcome.dropper(from, to, packet); });
    std::vector<Job> jobs = make_jobs(std::span(&spec, 1), world(), 5);
    EXPECT_TRUE(run(net, jobs));
    EXPECT_TRUE(all_given_back(net));
    EXPECT_TRUE(outcome.dropper.all_dropped());
    outcome.retransmits = retransmits(net);
    EXPECT_EQ(outcome.retransmits == 0, outcome.dropper.dropped() == 0);
    return outcome;
  }

  static std::vector<JobSpec> specs() {
    std::vector<JobSpec> list;
    for (const std::string codec : {"raw", "fixed:10"}) {
      for (const JobSpec& spec : all_kinds(world(), 20'003, 20'003 / world(), codec)) {
        if (!spec.average) list.push_back(spec);
      }
    }
    return list;
  }
  [[nodiscard]] static unsigned after(unsigned i) { return (i + 1) % world(); }
};

// Packets are lost on one link, or on all links.
TEST_P(Chosen, FirstAndLastPacketOfAnOperation) {
  const std::vector<JobSpec> specs = Chosen::specs();
  for (const auto& [job, more, at, link] : combinations<4>({specs.size(), 2, 2, 3})) {
    const JobSpec& spec = specs[job];
    const unsigned times = more == 0 ? 1 : 3;
    const bool last = at == 1;
    const unsigned only = link == 2 ? world() : static_cast<unsigned>(link);
    SCOPED_TRACE(testing::Message() << spec << ", " << (last ? "last" : "first") << " " << times << " times, link "
                                    << only);
    const Outcome calm = run_one(spec, 128, [](Dropper&) {});
    run_one(spec, 128, [&](Dropper& dropper) {
      for (unsigned i = 0; i < world(); ++i) {
        const auto seen = calm.dropper.seen(i, after(i));
        if (!seen || (only != world() && only != i)) continue;
        // After a loss on one link, the last packets of other links may have other numbers. With losses on all links,
        // each is therefore lost only once.
        dropper.drop({i, after(i), last ? seen->second : seen->first}, last && only == world() ? 1 : times);
      }
    });
  }
}

// The notification that an operation has started is lost. Data waits for it.
TEST_P(Chosen, TheStart) {
  for (const unsigned times : {1U, 3U}) {
    for (const JobSpec& spec : specs()) {
      run_one(spec, 128, [&](Dropper& dropper) {
        // The notification goes to the rank that sends the data.
        for (unsigned i = 0; i < world(); ++i) dropper.drop({after(i), i, 0}, times);
      });
    }
  }
}

TEST_P(Chosen, FirstAndLastPacketOfAWindow) {
  const JobSpec spec = {.kind = OpKind::kAllReduce, .count = 60'000};
  for (const size_t window : {size_t{2}, size_t{4}, size_t{16}, size_t{64}}) {
    const auto size = static_cast<uint32_t>(window);
    const Outcome calm = run_one(spec, window, [](Dropper&) {});
    for (const uint32_t place : {0U, size - 1}) {
      for (const bool everywhere : {false, true}) {
        SCOPED_TRACE(testing::Message() << "window " << window << ", place " << place);
        run_one(spec, window, [&](Dropper& dropper) {
          for (unsigned i = 0; i < (everywhere ? world() : 1); ++i) {
            // If losses change how runs are packed, there may be a few packets less.
            const uint32_t end = calm.dropper.seen(i, after(i))->second * 3 / 4;
            for (uint32_t sequence = place; sequence < end; sequence += size) dropper.drop({i, after(i), sequence}, 1);
          }
        });
      }
    }
  }
}

// All packets of a window are lost, or all but the last one.
TEST_P(Chosen, AWholeWindow) {
  const JobSpec spec = {.kind = OpKind::kAllReduce, .count = 60'000};
  for (const uint32_t window : {2U, 8U, 32U}) {
    for (const uint32_t spared : {0U, 1U}) {
      for (const unsigned times : {1U, 2U}) {
        SCOPED_TRACE(testing::Message() << "window " << window << ", spared " << spared << ", " << times << " times");
        run_one(spec, window, [&](Dropper& dropper) {
          for (unsigned i = 0; i < world(); ++i) {
            for (uint32_t k = 0; k < window - spared; ++k) dropper.drop({i, after(i), 1 + window + k}, times);
          }
        });
      }
    }
  }
}

// A packet and five of its retransmissions are lost.
TEST_P(Chosen, RetransmissionsAreLostToo) {
  const JobSpec spec = {.kind = OpKind::kAllReduce, .count = 60'000};
  for (const uint32_t sequence : {0U, 1U, 5U, 11U}) {
    for (const bool everywhere : {false, true}) {
      const Outcome outcome = run_one(spec, 128, [&](Dropper& dropper) {
        for (unsigned i = 0; i < (everywhere ? world() : 1); ++i) dropper.drop({i, after(i), sequence}, 6);
      });
      EXPECT_GE(outcome.retransmits, 6U);
    }
  }
}

// No acknowledgement arrives for half a second. In a world of two, no data arrives either.
TEST_P(Chosen, NoAcknowledgements) {
  for (const bool everywhere : {false, true}) {
    SimNet net(config_for(world()));
    std::vector<Job> start = make_jobs(std::vector<JobSpec>(1, {.kind = OpKind::kBarrier}), world(), 1);
    ASSERT_TRUE(run(net, start));
    const auto specs = all_kinds(world(), 50'000, 50'000 / world(), "fixed:10");
    std::vector<Job> jobs = make_jobs(specs, world(), 6);
    const Nanos begin = net.now() + 60 * kMicrosecond;
    net.set_filter([&](unsigned from, unsigned to, auto packet) {
      const bool quiet = net.now() >= begin && net.now() < begin + kSecond / 2 && (everywhere || to == 0);
      return !quiet || from != after(to) || (world() > 2 && is_data(packet));
    });
    EXPECT_TRUE(run(net, jobs));
    EXPECT_GT(net.now(), kSecond / 2);
    EXPECT_GT(net.count(Counter::kDuplicate), 0U);
    EXPECT_TRUE(all_given_back(net));
  }
}

INSTANTIATE_TEST_SUITE_P(Exchange, Chosen,
                         testing::ValuesIn(thorough() ? std::vector{2U, 3U, 4U, 8U} : std::vector{2U, 4U}),
                         testing::PrintToStringParamName());

// ---- Everything at random

// Operations, ranks, settings, links, faults and times at random, to find cases that the lists above do not have.
class Chance {
 public:
  explicit Chance(uint64_t seed) : random_(seed) {}

  template <typename T, size_t N>
  T one_of(const T (&values)[N]) {
    return values[random_.below(N)];
  }
  size_t below(size_t n) { return random_.below(n); }
  // Returns a size. Each order of magnitude is about equally likely.
  size_t size(size_t most) { return random_.below(random_.below(most) + 1) >> random_.below(8); }

  SimConfig config() {
    SimConfig config;
    config.seed = random_.next();
    config.nodes = one_of({1U, 2U, 2U, 3U, 3U, 4U, 5U, 6U, 7U, 9U, 13U});
    config.buffers = one_of({size_t{3}, size_t{4}, size_t{7}, size_t{20}, size_t{1000}, size_t{1000}});
    config.link.bits_per_second = one_of({100'000'000ULL, 1'000'000'000ULL, 10'000'000'000ULL, 100'000'000'000ULL});
    config.link.delay = one_of({Nanos{0}, kMicrosecond, 10 * kMicrosecond, 100 * kMicrosecond, kMillisecond});
    config.link.queue_bytes = one_of({size_t{12} << 10, size_t{64} << 10, size_t{1} << 20});
    config.faults.loss = one_of({0.0, 0.0, 0.001, 0.01, 0.1, 0.3});
    config.faults.duplicate = one_of({0.0, 0.01, 0.2});
    config.faults.reorder = one_of({0.0, 0.05, 0.7});
    config.faults.reorder_delay = one_of({10 * kMicrosecond, 300 * kMicrosecond, 3 * kMillisecond});
    config.faults.corrupt = one_of({0.0, 0.01, 0.1});
    config.faults.busy = one_of({0.0, 0.01, 0.3});
    ExchangeConfig& exchange = config.exchange;
    exchange.window = size_t{2} << below(9);
    exchange.mtu = one_of({kMinPacket, kMinPacket + 1, size_t{576}, size_t{1472}, size_t{1472}, kMaxMtu});
    exchange.segments = one_of({size_t{1}, size_t{1}, size_t{5}});
    exchange.max_bytes = size_t{2} << 20;
    exchange.stream_bytes = one_of({size_t{0}, size_t{4096}, kStreamBytes});
    config.adjust = [some = below(3)](unsigned node, ExchangeConfig& of_node) { of_node.pad = node % 3 < some; };
    exchange.queue_target = one_of({size_t{1}, size_t{16}, size_t{200}});
    exchange.max_hold = one_of({Nanos{0}, 10 * kMicrosecond, 100 * kMicrosecond});
    exchange.min_rto = one_of({100 * kMicrosecond, kMillisecond, 10 * kMillisecond});
    // Slowness is no failure here.
    exchange.peer_timeout = 20 * kSecond;
    exchange.start_timeout = exchange.operation_timeout = 36'000 * kSecond;
    return config;
  }

  JobSpec spec(unsigned world) {
    JobSpec spec;
    spec.kind = static_cast<OpKind>(below(5));
    spec.type = below(2) == 0 ? ElementType::kFloat32 : static_cast<ElementType>(below(7));
    const bool shares = spec.kind == OpKind::kReduceScatter || spec.kind == OpKind::kAllGather;
    spec.count = size(30'000) / (shares ? world : 1);
    spec.codec = one_of({"raw", "bf16", "fp16", "inceptionn:10", "inceptionn:3,truncate", "fixed:10", "fixed:20"});
    const bool sums = spec.kind == OpKind::kAllReduce || spec.kind == OpKind::kReduceScatter;
    spec.average = sums && spec.type <= ElementType::kBfloat16 && below(3) == 0;
    spec.root = static_cast<unsigned>(below(world));
    const bool can_feed_back = sums && spec.type == ElementType::kFloat32 && spec.codec.starts_with("fixed");
    spec.feedback = can_feed_back && below(2) == 0;
    spec.fill = below(3) == 0 ? Fill::kWild : Fill::kGradients;
    return spec;
  }

 private:
  Random random_;
};

TEST(Loss, AnythingAtOnce) {
  const uint64_t kRuns = thorough() ? 300 : 30;
  for (uint64_t seed = 1; seed <= kRuns; ++seed) {
    Chance chance(seed);
    const SimConfig config = chance.config();
    SimNet net(config);
    std::vector<JobSpec> specs;
    for (size_t left = 1 + chance.below(16); left != 0; --left) specs.push_back(chance.spec(net.nodes()));
    std::vector<Job> jobs = make_jobs(specs, net.nodes(), seed);

    // Each rank submits them in this order, at its own times, and sometimes stands still.
    const Nanos pace = chance.one_of({Nanos{1}, 10 * kMicrosecond, kMillisecond});
    std::vector<size_t> submitted(net.nodes());
    size_t left = jobs.size() * net.nodes();
    while (left != 0) {
      const auto i = static_cast<unsigned>(chance.below(net.nodes()));
      if (net.node(i).paused() || chance.below(20) != 0) {
        net.resume(i);
      } else {
        net.pause(i);
      }
      if (submitted[i] != jobs.size()) {
        (void)net.submit(i, jobs[submitted[i]++].operation(i));
        --left;
      }
      net.run_until(net.now() + chance.below(pace));
    }
    for (unsigned i = 0; i < net.nodes(); ++i) net.resume(i);
    ASSERT_TRUE(net.run_until_idle(net.now() + 1000 * kSecond)) << "seed " << seed;
    ASSERT_TRUE(all_succeeded(net)) << "seed " << seed;
    for (const Job& job : jobs) ASSERT_TRUE(job.right()) << "seed " << seed;
    ASSERT_TRUE(all_given_back(net)) << "seed " << seed;
  }
}

// The link from rank 1 loses packets, so that this rank receives more than it can send. Then the link loses everything:
// operations that time out give their deferred packets back.
TEST(Loss, PacketsWaitForTheNextLink) {
  SimConfig config = config_for(4);
  SimNet net(config);
  net.set_faults(1, 2, {.loss = 0.2});
  const std::vector<JobSpec> specs = {{.count = 200'003}, {.count = 50'001, .codec = "fixed:10"}};
  std::vector<Job> jobs = make_jobs(specs, 4, 1);
  EXPECT_TRUE(run(net, jobs));
  const Counters& counters = net.node(1).exchange().counters();
  const uint64_t deferred = counters[Counter::kDeferred];
  EXPECT_GT(deferred, 0U);
  EXPECT_LT(counters[Counter::kRunsAbsorbed], counters[Counter::kRunsMerged]);
  EXPECT_TRUE(all_given_back(net));
  net.set_faults(1, 2, {.loss = 1});
  std::vector<std::vector<float>> tensors(4, std::vector<float>(200'003));
  for (unsigned rank = 0; rank < 4; ++rank) {
    Operation operation;
    operation.count = tensors[rank].size();
    operation.data = tensors[rank].data();
    operation.timeout = 20 * kMillisecond;
    (void)net.submit(rank, operation);
  }
  (void)net.run_until_idle(10 * kSecond);
  EXPECT_GT(counters[Counter::kDeferred], deferred);
  EXPECT_TRUE(all_given_back(net));
}

// ---- No loss

TEST(Loss, NothingIsRepeatedWithoutNeed) {
  const struct {
    const char* name;
    LinkModel link;
    size_t count;
  } cases[] = {
      {"100 Mb/s, 5 ms", {.bits_per_second = 100'000'000, .delay = 2500 * kMicrosecond}, 300'000},
      {"1 Gb/s, 200 us", {.bits_per_second = 1'000'000'000, .delay = 100 * kMicrosecond}, 300'000},
      {"10 Gb/s, 50 us", {}, 1'000'000},
      {"100 Gb/s, 10 us", {.bits_per_second = 100'000'000'000, .delay = 5 * kMicrosecond}, 1'000'000},
      {"100 Gb/s, 1 us", {.bits_per_second = 100'000'000'000, .delay = 500}, 1'000'000},
      {"10 Gb/s, 40 ms", {.delay = 20 * kMillisecond}, 300'000},
  };
  for (const auto& c : cases) {
    for (const unsigned world : {2U, 3U, 8U}) {
      SCOPED_TRACE(testing::Message() << c.name << ", world " << world);
      SimConfig config = config_for(world);
      config.link = c.link;
      config.exchange.max_bytes = size_t{8} << 20;
      SimNet net(config);
      const JobSpec specs[] = {{.kind = OpKind::kAllReduce, .count = c.count / (thorough() ? 1 : 4)},
                               {.kind = OpKind::kAllReduce, .count = 1000, .codec = "fixed:10"},
                               {.kind = OpKind::kBroadcast, .count = 100'000, .codec = "bf16", .root = 1},
                               {.kind = OpKind::kBarrier}};
      std::vector<Job> jobs = make_jobs(specs, world, 7);
      EXPECT_TRUE(run(net, jobs));
      EXPECT_EQ(net.stats().queue_drops, 0U);
      EXPECT_TRUE(no_retransmits(net));
      EXPECT_EQ(net.count(Counter::kDuplicate), 0U);
    }
  }
}

}  // namespace
}  // namespace gradlane::test::loss_test
