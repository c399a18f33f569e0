// planes_test.cc - tests of blocks in bit planes: tensors and packets with groups of every kind, with and without loss
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tests/collectives/exchange/exchange_fixture.h"

namespace gradlane::test::planes_test {
namespace {

constexpr size_t kGroup = 32;

// Counts of groups by the kind that their tag states.
struct Kinds {
  size_t zero = 0;
  size_t narrow = 0;  // at most 8 bits per float
  size_t wide = 0;
  size_t escaped = 0;

  [[nodiscard]] size_t all() const { return zero + narrow + wide + escaped; }
  void add(unsigned tag) { ++(tag == 0 ? zero : tag <= 8 ? narrow : tag < 15 ? wide : escaped); }
  void add(const Kinds& other) {
    zero += other.zero;
    narrow += other.narrow;
    wide += other.wide;
    escaped += other.escaped;
  }
};

// Counts the groups of the runs in a packet.
Kinds kinds_in(std::span<const uint8_t> packet) {
  Kinds kinds;
  for (size_t at = sizeof(LinkHeader); is_data(packet) && at < packet.size();) {
    const auto header = load<RunHeader>(packet.data() + at);
    at += sizeof(RunHeader);
    const bool elements = header.phase == Phase::kReduce || header.phase == Phase::kGather;
    const size_t groups = elements ? (header.count + kGroup - 1) / kGroup : 0;
    for (size_t g = 0; g < groups; ++g) kinds.add(packet[at + g / 2] >> (g % 2 * 4) & 15U);
    at += header.bytes;
  }
  return kinds;
}

struct Seen {
  Kinds all;
  bool mixed = false;  // a packet with all kinds
};

class Planes : public testing::TestWithParam<unsigned> {
 protected:
  static constexpr std::array kCounts = {size_t{1}, kGroup, kGroup + 1, size_t{100'003}};
  static constexpr std::array kCodecs = {"fixed:10", "fixed:4"};

  [[nodiscard]] static unsigned world() { return GetParam(); }

  [[nodiscard]] static SimConfig config(const Faults& faults) {
    SimConfig config;
    config.nodes = world();
    config.seed = 17 + world();
    config.exchange.max_bytes = size_t{1} << 20;
    config.faults = faults;
    return config;
  }

  // Runs all counts with both codecs. Returns the groups that were sent.
  [[nodiscard]] static Seen run_all(Groups groups, const Faults& faults) {
    std::vector<JobSpec> specs;
    for (const std::string codec : kCodecs) {
      for (const size_t count : kCounts) {
        specs.push_back(
            {.kind = OpKind::kAllReduce, .count = count, .codec = codec, .fill = Fill::kGroups, .groups = groups});
      }
    }
    Seen seen;
    SimNet net(config(faults));
    net.set_tap([&](unsigned, unsigned, std::span<const uint8_t> packet) {
      const Kinds kinds = kinds_in(packet);
      seen.all.add(kinds);
      seen.mixed |= kinds.zero != 0 && kinds.narrow != 0 && kinds.wide != 0 && kinds.escaped != 0;
    });
    std::vector<Job> jobs = make_jobs(specs, world(), 100 * world());
    EXPECT_TRUE(run(net, jobs));
    EXPECT_TRUE(all_given_back(net));
    // Zeros need only a few packets.
    if (faults.loss > 0 && world() > 1 && groups != Groups::kZero) {
      EXPECT_GT(retransmits(net), 0U);
    }
    return seen;
  }

  // Calls run_all() without faults, and with losses, duplicates and reordering.
  static std::array<Seen, 2> run_both(Groups groups) {
    return {run_all(groups, {}), run_all(groups, {.loss = 0.05, .duplicate = 0.02, .reorder = 0.05})};
  }
};

TEST_P(Planes, AllZero) {
  for (const Seen& seen : run_both(Groups::kZero)) {
    EXPECT_EQ(seen.all.zero, seen.all.all());
    EXPECT_EQ(seen.all.all() != 0, world() != 1);
  }
}

TEST_P(Planes, AllEscaped) {
  for (const Groups groups : {Groups::kEscaped, Groups::kRaw}) {
    for (const Seen& seen : run_both(groups)) {
      // The last group of a tensor has only one float or three, and may have none that does not fit 16 bits. Each rank
      // sends that group at most twice, and some packets are sent twice.
      EXPECT_GE(seen.all.escaped + 4 * world() * kCodecs.size() * kCounts.size(), seen.all.all());
      EXPECT_EQ(seen.all.wide, 0U);
      EXPECT_EQ(seen.all.all() != 0, world() != 1);
    }
  }
}

TEST_P(Planes, AllKindsInAPacket) {
  for (const Seen& seen : run_both(Groups::kMixed)) EXPECT_EQ(seen.mixed, world() != 1);
}

TEST_P(Planes, ErrorFeedback) {
  SimNet net(config({.loss = 0.02}));
  std::vector<JobSpec> specs;
  for (const size_t count : {kGroup + 1, size_t{20'003}}) {
    specs.push_back({.kind = OpKind::kAllReduce,
                     .count = count,
                     .codec = "fixed:4",
                     .feedback = true,
                     .fill = Fill::kGroups,
                     .groups = Groups::kMixed});
  }
  std::vector<Job> jobs = make_jobs(specs, world(), 3);
  for (unsigned round = 0; round < 3; ++round) {
    for (Job& job : jobs) job.renew(100 * round + job.bytes());
    ASSERT_TRUE(run(net, jobs)) << "round " << round;
  }
}

// Zeros are so short that each packet has 32768 elements. A poll must not fill a whole window of 16 such packets.
TEST(LongRuns, PollsStayShort) {
  SimConfig config;
  config.exchange.max_bytes = size_t{8} << 20;
  const JobSpec zeros = {
      .kind = OpKind::kAllReduce, .count = size_t{2} << 20, .codec = "fixed:10", .fill = Fill::kGroups};
  SimNet net(config);
  std::vector<Job> jobs = make_jobs(std::span(&zeros, 1), config.nodes, 1);
  for (unsigned i = 0; i < config.nodes; ++i) (void)net.submit(i, jobs[0].operation(i));
  const auto sent = [&net] { return net.node(0).exchange().counters()[Counter::kReducePackets]; };
  ASSERT_TRUE(net.run_until([&sent] { return sent() != 0; }, kSecond));
  EXPECT_LE(sent(), 4U);
  ASSERT_TRUE(net.run_until_idle(10 * kSecond));
  EXPECT_TRUE(all_succeeded(net));
  EXPECT_TRUE(jobs[0].right());
}

INSTANTIATE_TEST_SUITE_P(Exchange, Planes, testing::Values(1, 2, 3, 5), testing::PrintToStringParamName());

}  // namespace
}  // namespace gradlane::test::planes_test
