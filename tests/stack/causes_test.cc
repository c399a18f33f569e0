// causes_test.cc - the causes that errors, logs and statistics name for failed operations and missing neighbours
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <string>

#include "config/addresses.h"
#include "dataplane/frame/frame.h"
#include "tests/dataplane/test_eal.h"
#include "tests/stack/stack.h"
#include "tests/stack/trainers.h"

namespace gradlane::test::causes_test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

constexpr size_t kCount = 50'000;  // floats: many packets of full length
constexpr size_t kTos = 15;        // offset of the ToS in a frame
constexpr size_t kHeaderSum = 24;  // offset of IPv4's header checksum in a frame

NodeConfig patient(NodeConfig config) {
  config.peer_timeout = 3 * kSecond;
  config.start_timeout = 20 * kSecond;
  config.operation_timeout = 60 * kSecond;
  return config;
}

bool is_ip(std::span<const uint8_t> frame) { return frame.size() > 34 && frame[12] == 0x08 && frame[13] == 0; }

// Sets the ToS as a switch that rewrites DSCP does, and updates the header checksum (RFC 1624).
void set_tos(std::span<uint8_t> frame, uint8_t tos) {
  uint32_t sum = static_cast<uint16_t>(~(frame[kHeaderSum] << 8 | frame[kHeaderSum + 1]));
  sum += static_cast<uint16_t>(~frame[kTos]) + uint32_t{tos};
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  frame[kHeaderSum] = static_cast<uint8_t>(~sum >> 8);
  frame[kHeaderSum + 1] = static_cast<uint8_t>(~sum);
  frame[kTos] = tos;
}

// Three nodes whose operations work, until something is wrong with the network.
class Causes : public testing::Test {
 protected:
  Causes() : stack_({.nodes = 3, .change = [](NodeConfig& it) { it = patient(it); }}), team_(stack_) {}

  // Breaks the network with `filter`. Expects that all errors of trainers, all logs (at most two lines each) and all
  // statistics match `pattern`, and that operations succeed again without the filter.
  void expect_cause(const std::string& pattern, const Network::Filter& filter, int rounds = 2) {
    ASSERT_TRUE(all_succeeded(team_.all_reduce(kCount)));
    std::map<unsigned, size_t> before;
    for (unsigned node = 0; node < 3; ++node) before[node] = stack_.log_count(node, "operations? failed: .*" + pattern);
    stack_.network().set_filter(filter);
    for (int i = 0; i < rounds; ++i) {
      for (const auto& [rank, ended] : team_.all_reduce(kCount)) {
        EXPECT_EQ(ended.code, GRADLANE_FAILED);
        EXPECT_THAT(ended.text, ContainsRegex(pattern)) << "rank " << rank;
        EXPECT_THAT(ended.text, HasSubstr("gradlane check"));
      }
      team_.resume();
    }
    stack_.run_for(500 * kMillisecond);
    for (unsigned node = 0; node < 3; ++node) {
      EXPECT_TRUE(stack_.logged(node, "error node [0-9]: [0-9]+ operations? failed: .*" + pattern)) << node;
      EXPECT_LE(stack_.log_count(node, "operations? failed: .*" + pattern) - before[node], 2U) << node;
      EXPECT_THAT(stack_.figures(node).ranks.at(0).failed, ContainsRegex(pattern));
      EXPECT_LT(stack_.figures(node).failed_s_ago.value_or(1000), 60);
    }
    stack_.network().set_filter(nullptr);
    team_.expect_works(kCount);
  }

  Stack stack_;
  TrainerGroup team_;
};

const std::string kRewritten =
    "packets of rank 0 arrive at rank 1 with ToS 0x04, which is not in `tos`: a switch between them rewrites DSCP";

TEST_F(Causes, ASwitchThatRewritesDscpOfData) {
  EXPECT_EQ(stack_.figures(0).failed_s_ago, std::nullopt);
  expect_cause(kRewritten, [](unsigned from, unsigned to, std::span<uint8_t> frame) {
    if (from == 0 && to == 1 && is_ip(frame) && frame[kTos] == 0x20) set_tos(frame, 0x04);
    return true;
  });
  EXPECT_GT(stack_.figures(1).neighbours.at(0).wrong_tos, 0U);
}

TEST_F(Causes, ASwitchThatRewritesDscpOfEverything) {
  expect_cause(
      kRewritten,
      [](unsigned from, unsigned to, std::span<uint8_t> frame) {
        if (from == 0 && to == 1 && is_ip(frame)) set_tos(frame, 0x04);
        return true;
      },
      1);
}

// The cable of one node drops IP packets of more than 1400 bytes, in both directions.
TEST_F(Causes, APortWithASmallerMtu) {
  for (const unsigned node : {1U, 0U}) {
    const std::string from = node == 1 ? "[01]" : "[02]";
    const std::string to = node == 1 ? "[12]" : "[01]";
    expect_cause("packets of 1[45][0-9][0-9] bytes from rank " + from + " do not arrive at rank " + to +
                     "(: the path takes at most 140[04] .found by probes.|, .*: the MTU of an interface or a switch "
                     "port between them is too small)",
                 [node](unsigned sender, unsigned receiver, std::span<uint8_t> frame) {
                   return (sender != node && receiver != node) || frame.size() <= 1400 + 14;
                 });
  }
}

// After a trainer has left, each attempt of the other ranks fails at once, until a new trainer has come.
TEST_F(Causes, ARankThatIsAbsent) {
  ASSERT_TRUE(all_succeeded(team_.all_reduce(kCount)));
  team_.close(1);
  const Nanos begin = stack_.now();
  for (int i = 0; i < 6; ++i) {
    for (const auto& [rank, ended] : team_.barrier()) {
      EXPECT_EQ(ended.code, GRADLANE_FAILED);
      EXPECT_THAT(ended.text, HasSubstr("rank 1 has left"));
    }
    team_.resume();
  }
  EXPECT_LT(stack_.now() - begin, kSecond) << "60 s a round otherwise";
  stack_.kill(1);
  stack_.start(1);
  ASSERT_TRUE(stack_.run_until([&] { return stack_.is_complete(); }));
  for (int i = 0; i < 3; ++i) {  // the daemon is new, but its trainer has not come back
    for (const auto& [rank, ended] : team_.barrier()) {
      EXPECT_EQ(ended.code, GRADLANE_FAILED);
      EXPECT_THAT(ended.text, ContainsRegex("rank 1 has (left|restarted|been silent)"));
    }
    team_.resume();
  }
  team_.open(1);
  team_.expect_works(kCount);
}

// The new trainer of a restarted daemon submits before the ring is ready, and leaves later. The other ranks fail at
// once.
TEST(Departure, OfTheTrainerOfARestartedDaemon) {
  Stack stack({.nodes = 3, .strategies = "ring", .seed = 1});
  TrainerGroup group(stack);
  group.expect_works();
  const auto begin = [&](unsigned rank) { return group[rank].all_reduce(group[rank].array(0, 1000)); };
  for (int i = 0; i < 3; ++i) {
    stack.kill(1);
    group.close(1);
    stack.start(1);
    group.open(1);
    std::map<unsigned, gradlane_request> requests = {{1, begin(1)}};
    ASSERT_TRUE(stack.run_until([&] { return stack.is_complete(); }));
    for (const unsigned rank : {0U, 2U}) {
      group.close(rank);  // the new trainer has taken part in this generation only
      group.open(rank);
      requests[rank] = begin(rank);
    }
    for (const auto& [rank, request] : requests) {
      const Outcome ended = group[rank].wait(request);
      EXPECT_EQ(ended.code, GRADLANE_OK) << "rank " << rank << ": " << ended.text;
    }
    group.close(1);
    for (int again = 0; again < 2; ++again) {  // once in this generation, and once in the next one
      const Nanos since = stack.now();
      for (const auto& [rank, ended] : group.barrier()) {
        EXPECT_EQ(ended.code, GRADLANE_FAILED) << "rank " << rank;
        EXPECT_THAT(ended.text, HasSubstr("rank 1 has left"));
      }
      EXPECT_LT(stack.now() - since, kSecond);
      group.resume();
    }
    group.open(1);
    group.expect_works();
  }
}

// The daemon counts how long operations wait for each trainer of its node.
TEST(LocalReduce, CountsTheWaitForEachTrainer) {
  Stack stack({.nodes = 2, .strategies = "ring", .seed = 1, .change = [](NodeConfig& it) {
                 it.trainers = 3;
                 it.local_reduce = true;
               }});
  TrainerGroup group(stack);
  const auto begin = [&](unsigned rank) { return group[rank].all_reduce(group[rank].array(0, 1000)); };
  std::map<unsigned, gradlane_request> requests;
  for (const unsigned rank : {0U, 1U, 2U, 4U}) requests[rank] = begin(rank);
  stack.run_for(30 * kMillisecond);
  requests[3] = begin(3);
  stack.run_for(50 * kMillisecond);
  const auto awaited = [&](unsigned node) { return stack.figures(node).awaited; };
  // The lane publishes the counts every 100 ms, also during a wait.
  stack.run_for(110 * kMillisecond);
  EXPECT_GE(awaited(1)[2].awaited_us, 80'000);
  requests[5] = begin(5);
  for (const auto& [rank, request] : requests) EXPECT_EQ(group[rank].wait(request).code, GRADLANE_OK);
  ASSERT_EQ(awaited(1).size(), 3U);
  EXPECT_EQ(awaited(1)[2].rank, 5U);
  EXPECT_EQ(awaited(1)[1].awaited_us, 0);
  // Library calls take a few ms of virtual time.
  EXPECT_NEAR(awaited(1)[0].awaited_us, 30'000, 15'000);
  EXPECT_NEAR(awaited(1)[2].awaited_us, 190'000, 15'000);
  for (const TrainerFigures& it : awaited(0)) EXPECT_LT(it.awaited_us, 15'000);
}

// ---- A path whose MTU shrinks: errors name the MTU that probes have found, and later operations work again

TEST(Path, WhoseMtuShrinks) {
  constexpr size_t kLess = 1400;
  Stack stack({.nodes = 2, .change = [](NodeConfig& it) { it = patient(it); }});
  TrainerGroup team(stack);
  ASSERT_TRUE(all_succeeded(team.all_reduce(kCount)));
  stack.network().set_filter(
      [](unsigned, unsigned, std::span<uint8_t> frame) { return frame.size() <= kLess + kEthernetBytes; });
  const auto errors_name_mtu = [&] {
    bool found = true;
    for (const auto& [rank, ended] : team.all_reduce(kCount)) {
      EXPECT_EQ(ended.code, GRADLANE_FAILED);
      EXPECT_THAT(ended.text,
                  ContainsRegex("packets of 1[45][0-9][0-9] bytes from rank [01] do not arrive at rank [01]"));
      found &= ended.text.find(": the path takes at most 1400 (found by probes): set mtu: 1400 on all nodes") !=
               std::string::npos;
    }
    team.resume();
    return found;
  };
  EXPECT_TRUE(errors_name_mtu() || errors_name_mtu() || errors_name_mtu())
      << "the first errors do, if probes had the time";
  for (unsigned node = 0; node < 2; ++node) {
    const std::string other = std::to_string(1 - node);
    const std::string text =
        "the path to node " + other + " (" + address_text(stack.config(1 - node).nodes[1 - node]) +
        ") takes packets of at most 1400 bytes, but mtu is 1500: set mtu: 1400 on all nodes (found by "
        "probes)";
    EXPECT_TRUE(stack.poll_until([&] { return stack.figures(node).neighbours.at(0).trouble == text; }, 30 * kSecond));
    EXPECT_EQ(stack.figures(node).neighbours.at(0).path_bytes, kLess);
    EXPECT_TRUE(stack.logged(node, "the path to node " + other + " .* takes packets of at most 1400 bytes"));
  }
  stack.network().set_filter(nullptr);
  team.expect_works(kCount);
  for (unsigned node = 0; node < 2; ++node) {
    EXPECT_TRUE(stack.poll_until([&] { return stack.figures(node).neighbours.at(0).path_bytes == 0; }, 30 * kSecond));
    EXPECT_TRUE(stack.poll_until([&] { return stack.logged(node, "takes packets of mtu 1500 again"); }, kSecond));
    EXPECT_EQ(stack.log_count(node, "the path to node"), 2U);
  }
}

// ---- One file differs in one setting: both sides name it, with both values

void expect_why(const std::function<void(NodeConfig&)>& other, const std::string& by_first,
                const std::string& by_second, bool logged = false) {
  Stack stack({.nodes = 2, .change = [&other](NodeConfig& it) {
                 it = patient(it);
                 if (it.rank == 1) other(it);
               }});
  const std::string patterns[] = {by_first, by_second};
  for (unsigned node = 0; node < 2; ++node) {
    const auto named = [&] {
      const auto& neighbours = stack.figures(node).neighbours;
      return !neighbours.empty() && std::regex_search(neighbours[0].why, std::regex(patterns[node]));
    };
    EXPECT_TRUE(stack.poll_until(named, 15 * kSecond)) << patterns[node] << "\n"
                                                       << stack.figures(node).neighbours[0].why;
    if (!logged) continue;
    EXPECT_TRUE(
        stack.poll_until([&] { return stack.logged(node, "node . is missing: " + patterns[node]); }, 15 * kSecond));
  }
  EXPECT_FALSE(stack.figures(0).ready);
}

TEST(DifferingFiles, Lanes) {
  expect_why([](NodeConfig& it) { it.lanes = it.threads = 2; }, "workers.lanes: 1 here, 2 there",
             "workers.lanes: 2 here, 1 there");
}

TEST(DifferingFiles, Trainers) {
  expect_why([](NodeConfig& it) { it.trainers = 2; }, "trainers: 1 here, 2 there", "trainers: 2 here, 1 there");
}

TEST(DifferingFiles, Mtu) {
  expect_why([](NodeConfig& it) { it.mtu = 1400; }, "mtu: 1500 here, 1400 there", "mtu: 1400 here, 1500 there");
}

TEST(DifferingFiles, Strategies) {
  expect_why([](NodeConfig& it) { it.strategies.push_back(find_strategy("direct")); },
             "strategies: ring here, ring, direct there", "strategies: ring, direct here, ring there");
}

TEST(DifferingFiles, UdpPort) {
  expect_why([](NodeConfig& it) { it.udp_port = 18500; }, "arrive at UDP port 18500, which this node does not use",
             "arrive at UDP port 18[34]00, which this node does not use");
}

TEST(DifferingFiles, Tos) {
  expect_why(
      [](NodeConfig& it) {
        it.tos_compressed = 0x48;
        it.tos_raw = 0x40;
        it.tos_control = 0x80;
      },
      "their ToS is not in `tos` .last: 0x80", "their ToS is not in `tos` .last: 0xc0");
}

TEST(DifferingFiles, Addresses) {
  expect_why([](NodeConfig& it) { it.nodes[1].ip += 7; }, "node 1 sends from [0-9.]+, but `nodes` has [0-9.]+ here",
             "node 0 .[0-9.]+. sends ARP requests for [0-9.]+, which is not in `nodes` here");
}

TEST(DifferingFiles, Keys) {
  const std::filesystem::path folder = new_folder("keys");
  const std::string key = write_key(folder);
  expect_why(
      [&key](NodeConfig& it) {
        it.security = Security::kEncrypted;
        it.key_file = key;
      },
      "packets of node 1 .[0-9.]+. have tags, but this node has no key",
      "packets of node 0 .[0-9.]+. have no tags .* this node has one", true);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gradlane::test::causes_test
