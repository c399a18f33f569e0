// strategies_test.cc - tests of every strategy: all kinds, types and codecs in many worlds, with and without loss
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "collectives/strategy/codec_needs.h"
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
  config.exchange.max_bytes = size_t{2} << 20;
  config.exchange.operations = 4;  // fewer operations need less memory to be cleared
  return config;
}

Faults bad_weather() {
  return {.loss = 0.1, .duplicate = 0.05, .reorder = 0.1, .corrupt = 0.05, .busy = 0.05, .reorder_delay = 300'000};
}

// Returns operations of all kinds that the strategy supports. They name the strategy.
std::vector<JobSpec> kinds(const std::string& strategy, unsigned world, size_t count, const std::string& codec) {
  std::vector<JobSpec> specs;
  std::vector<JobSpec> all = all_kinds(world, count, count, codec);
  const std::vector<JobSpec> more = direct_kinds(world, count, count, codec);
  all.insert(all.end(), more.begin(), more.end());
  for (JobSpec& spec : all) {
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
    config.exchange.operations = std::min(config.exchange.operations, specs.size());
    config.exchange.max_bytes = largest(specs, world());
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
  const std::vector<size_t> counts = {0, 1, world() - 1, 1237};
  const size_t of_all = kinds(strategy(), world(), 1, "raw").size();
  std::vector<JobSpec> specs;
  for (const auto& [codec, count, kind] : combinations<3>({kCodecs.size(), counts.size(), of_all})) {
    specs.push_back(kinds(strategy(), world(), counts[count], kCodecs[codec])[kind]);
  }
  run_all(specs);
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
  for (const ElementType type : {kFloat16, kBfloat16}) {
    for (JobSpec spec : kinds(strategy(), world(), 5237, "pack")) {
      spec.type = type;
      specs.push_back(spec);
      spec.fill = Fill::kWild;
      specs.push_back(spec);
    }
  }
  run_all(specs);
}

TEST_P(Strategies, SumsAreRoundedOnce) {
  if (!has_owners(find_strategy(strategy()), world())) return;  // no rank has all contributions
  if (world() == 1) return;                                     // nothing is added: NaN stay as they are
  std::vector<JobSpec> specs;
  for (const ElementType type : {kFloat32, kFloat64, kFloat16, kBfloat16}) {
    for (JobSpec spec : kinds(strategy(), world(), 1237, "exact")) {
      if (!reduces(spec.kind)) continue;
      spec.type = type;
      specs.push_back(spec);
      spec.fill = Fill::kWild;
      specs.push_back(spec);
    }
    specs.push_back({.kind = OpKind::kAllReduce,
                     .count = 200'003,  // many windows of every owner
                     .codec = "exact",
                     .type = type,
                     .strategy = strategy()});
  }
  run_all(specs);
  run_all(specs, bad_weather());
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

// These tensors take many windows of every owner.
TEST_P(Strategies, LargeTensors) {
  for (const std::string codec : {"raw", "fixed:10"}) {
    run_all({{.kind = OpKind::kAllReduce,
              .count = thorough() ? size_t{1'000'003} : size_t{200'003},
              .codec = codec,
              .strategy = strategy()}});
  }
}

// Each operation knows the bytes that were sent for it: its runs. Their sum must be, to the byte, all bytes of packets
// except headers and padding.
TEST_P(Strategies, SentBytes) {
  for (const std::string codec : {"raw", "fixed:10"}) {
    SimNet net(switched(strategy(), world()));
    std::vector<Job> jobs = make_jobs(kinds(strategy(), world(), 20'011, codec), world(), world());
    ASSERT_TRUE(run(net, jobs));
    uint64_t sent = 0;
    for (unsigned rank = 0; rank < world(); ++rank) {
      for (const SimCompletion& each : net.node(rank).completions()) sent += each.sent_bytes;
    }
    const uint64_t packets = net.count(Counter::kReducePackets) + net.count(Counter::kGatherPackets);
    const uint64_t bytes = net.count(Counter::kReduceBytes) + net.count(Counter::kGatherBytes);
    EXPECT_LE(sent, bytes - packets * sizeof(LinkHeader)) << codec;
    EXPECT_GE(sent, (bytes - packets * sizeof(LinkHeader)) * 15 / 16) << codec << ": padding is less";
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
  const std::vector<unsigned> worlds = thorough() ? std::vector{1U, 2U, 3U, 4U, 5U, 8U, 16U} : std::vector{2U, 3U, 4U};
  for (const unsigned world : worlds) {
    list.emplace_back("direct", world);
    list.emplace_back("aggregator:0", world);
    if (world > 2) list.emplace_back("aggregator:" + std::to_string(world - 2) + ",stream", world);
    for (const unsigned group : {2U, 3U, 4U}) {
      if (world % group == 0) list.emplace_back("rings:" + std::to_string(group), world);
    }
  }
  if (thorough()) list.emplace_back("rings:3", 9);
  return list;
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name = std::get<0>(info.param) + "_in_" + std::to_string(std::get<1>(info.param));
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

// ---- Few buffers

// Packets that wait to be copied to other links leave one buffer free for the copy.
TEST(FewBuffers, AreEnoughForAllStrategies) {
  for (const char* const strategy : {"ring", "direct", "aggregator:1", "aggregator:0,stream", "rings:2"}) {
    for (const unsigned world : thorough() ? std::vector{3U, 4U, 8U} : std::vector{4U}) {
      if (world % 2 != 0 && std::string(strategy) == "rings:2") continue;
      for (const size_t more : {size_t{3}, size_t{20}, size_t{120}}) {
        SCOPED_TRACE(testing::Message() << strategy << ", world " << world << ", " << more << " buffers more");
        SimConfig config = switched(strategy, world);
        config.faults.loss = 0.01;
        // One buffer for each link is kept for acknowledgements.
        config.buffers = world - 1 + more;
        SimNet net(config);
        std::vector<Job> jobs =
            make_jobs(std::vector<JobSpec>(
                          2, {.kind = OpKind::kAllReduce, .count = 200'003, .codec = "raw", .strategy = strategy}),
                      world, 5);
        EXPECT_TRUE(run(net, jobs, 50 * kSecond));
      }
    }
  }
}

// Something else takes all buffers. Results leave as soon as there are some again, and not with the next keep-alive.
TEST(FewBuffers, AreAskedForAgain) {
  for (const Nanos max_hold : {Nanos{0}, 10 * kMicrosecond}) {
    SimConfig config = switched("direct", 3);
    config.buffers = 64;
    config.exchange.max_hold = max_hold;
    SimNet net(config);
    std::vector<Job> jobs =
        make_jobs(std::vector<JobSpec>(1, {.kind = OpKind::kBroadcast, .count = 1000, .strategy = "direct"}), 3, 2);
    (void)net.submit(0, jobs[0].operation(0));
    net.run_until(10 * kMillisecond);
    std::vector<Packet> taken;
    for (Packet packet; (packet = net.node(0).allocate());) taken.push_back(packet);
    for (const unsigned rank : {1U, 2U}) (void)net.submit(rank, jobs[0].operation(rank));
    const uint64_t polls = net.node(0).polls();
    net.run_until(11 * kMillisecond);
    EXPECT_LT(net.node(0).polls() - polls, 200);
    for (const Packet packet : taken) net.node(0).release(packet);
    EXPECT_TRUE(net.run_until_idle(12 * kMillisecond));
    EXPECT_TRUE(jobs[0].right());
  }
}

// ---- Equal bytes

// Runs all-reduces of the ranks' tensors, cut into `buckets` operations. Returns the result of rank 0. All others must
// have the same.
std::vector<float> reduced(const std::string& strategy, const std::string& codec,
                           std::vector<std::vector<float>> tensors, size_t buckets, Reduction reduction) {
  const auto world = static_cast<unsigned>(tensors.size());
  SimConfig config = switched(strategy, world);
  config.faults.loss = 0.02;
  config.faults.reorder = 0.1;
  config.exchange.operations = buckets;
  SimNet net(config);
  const size_t count = tensors[0].size();
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    const size_t first = count * bucket / buckets;
    for (unsigned rank = 0; rank < world; ++rank) {
      Operation operation;
      operation.count = count * (bucket + 1) / buckets - first;
      operation.data = tensors[rank].data() + first;
      operation.codec = find_codec(codec);
      operation.reduction = reduction;
      (void)net.submit(rank, operation);
    }
  }
  EXPECT_TRUE(net.run_until_idle(60 * kSecond));
  EXPECT_TRUE(all_succeeded(net));
  for (unsigned rank = 1; rank < world; ++rank) {
    EXPECT_EQ(std::memcmp(tensors[rank].data(), tensors[0].data(), count * sizeof(float)), 0) << strategy;
  }
  return tensors[0];
}

// `fixed` adds exactly. So the strategy, the order of the ranks and the cuts into operations do not matter.
TEST(SameBytes, OfFixedUnderAllStrategies) {
  constexpr unsigned kWorld = 8;
  std::vector<std::vector<float>> tensors;
  for (unsigned rank = 0; rank < kWorld; ++rank) {
    Random random(rank);
    std::vector<float>& tensor = tensors.emplace_back(30'011);
    for (float& value : tensor)
      value = static_cast<float>(static_cast<double>(random.next() >> 11) * 0x1p-53 - 0.5) * 0.2F;
  }
  std::vector<std::vector<float>> other = {tensors[5], tensors[2], tensors[7], tensors[0],
                                           tensors[3], tensors[6], tensors[1], tensors[4]};
  const char* const strategies[] = {"ring", "direct", "rings:2", "rings:4", "aggregator:0", "aggregator:5,stream"};
  const std::vector<std::string> codecs =
      thorough() ? std::vector<std::string>{"fixed:4", "fixed:10", "fixed:16"} : std::vector<std::string>{"fixed:10"};
  for (const std::string& codec : codecs) {
    for (const Reduction reduction : {Reduction::kSum, Reduction::kAverage}) {
      const std::vector<float> want = reduced("ring", codec, tensors, 1, reduction);
      for (const char* const strategy : strategies) {
        for (const size_t buckets : {size_t{1}, size_t{7}}) {
          SCOPED_TRACE(testing::Message() << strategy << ", " << codec << ", " << buckets << " buckets");
          EXPECT_EQ(reduced(strategy, codec, buckets == 1 ? tensors : other, buckets, reduction), want);
        }
      }
    }
  }
}

// If a sum depends on the order, the order is fixed. Each run of a strategy gives the same bytes, whatever is lost.
// Sums of `raw` are the same with direct as with the ring, because each block is added in the ring's order.
TEST(SameBytes, OfRawUnderDirectAndTheRing) {
  std::vector<std::vector<float>> tensors;
  for (unsigned rank = 0; rank < 7; ++rank) {
    Random random(100 + rank);
    std::vector<float>& tensor = tensors.emplace_back(20'011);
    for (float& value : tensor) value = static_cast<float>(static_cast<double>(random.next() >> 11) * 0x1p-53 - 0.5);
  }
  const std::vector<float> want = reduced("ring", "raw", tensors, 1, Reduction::kSum);
  EXPECT_EQ(reduced("direct", "raw", tensors, 1, Reduction::kSum), want);
  EXPECT_NE(reduced("aggregator:0", "raw", tensors, 1, Reduction::kSum), want);
}

INSTANTIATE_TEST_SUITE_P(, Strategies, testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace gradlane::test::strategies_test
