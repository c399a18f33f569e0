// addresses_test.cc - copied configurations and addresses that move: daemons that start or are refused, and hosts that
// errors name
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "config/addresses.h"
#include "config/values.h"
#include "dataplane/frame/frame.h"
#include "tests/stack/stack.h"
#include "tests/stack/trainers.h"

namespace gradlane::test::addresses_test {
namespace {

using testing::HasSubstr;

constexpr unsigned kStray = 3;  // number of the spare host, on which copies of nodes run
constexpr const char* kMac = "[0-9a-f]{2}(?::[0-9a-f]{2}){5}";

// Three nodes, and a host that gets a copied configuration.
class Addresses : public testing::Test {
 protected:
  Addresses() : stack_({.nodes = 3, .spare = 1}) {}

  [[nodiscard]] std::string mac(unsigned host) const { return mac_text(*stack_.config(host).ports[0].mac); }
  [[nodiscard]] std::string ip(unsigned node) const { return address_text(stack_.config(node).nodes[node]); }
  [[nodiscard]] bool is_complete() {
    return stack_.run_until([this] { return stack_.is_complete(); });
  }
  [[nodiscard]] bool logs(unsigned node, const std::string& text) {
    const auto has = [&](const std::string& line) { return line.find(text) != std::string::npos; };
    return stack_.poll_until([&] { return std::ranges::any_of(stack_.log(node), has); }, 20 * kSecond);
  }
  // Starts a daemon with this node's configuration on another host.
  void copy(unsigned node, const MacAddress& mac = {0x02, 0, 0, 0, 0, 0x99}) {
    stack_.next_config(kStray) = stack_.config(node);
    stack_.next_config(kStray).socket = stack_.folder() / "stray.sock";
    stack_.next_config(kStray).ports[0].mac = mac;
    stack_.start(kStray);
  }
  // Starts a host that answers ARP requests for the address of this node. Returns the addresses of the host.
  LocalAddress answer_arp_for(unsigned node) {
    const LocalAddress host = {
        .mac = {0x02, 0, 0, 0, 0, 0x77}, .ip = stack_.config(node).nodes[node].ip, .udp_port = 1, .udp_ports = 1};
    stack_.network().listen(kStray);
    stack_.set_background([this, host] {
      while (std::optional<Bytes> frame = stack_.network().take(kStray)) {
        const ParsedFrame parsed = parse_frame(*frame, host, Classifier(0x28, 0x20, 0xc0));
        if (parsed.verdict != FrameVerdict::kArp) continue;
        frame->resize(answer_frame(*frame, parsed, host));
        if (!frame->empty()) stack_.network().send(kStray, *frame);
      }
    });
    return host;
  }

  Stack stack_;
};

TEST_F(Addresses, ACopyDoesNotStart) {
  ASSERT_TRUE(is_complete());
  copy(1);
  ASSERT_TRUE(stack_.run_until([&] { return !stack_.is_running(kStray); }));
  EXPECT_THAT(stack_.exit_error(kStray), HasSubstr("port e0: " + ip(1) + " is in use by " + mac(1) +
                                                   ": check whether a configuration was copied"));
  EXPECT_TRUE(logs(1, mac(kStray) + " asked for " + ip(1) + ", the address of this node")) << "the node says who asked";
  EXPECT_TRUE(is_complete());
}

TEST_F(Addresses, ANodeThatStartsAgainIsNoCopy) {
  ASSERT_TRUE(is_complete());
  stack_.kill(1);
  stack_.start(1);
  ASSERT_TRUE(is_complete());
  stack_.run_for(kSecond);
  for (unsigned node = 0; node < 3; ++node) EXPECT_FALSE(stack_.logged(node, "in use|two machines")) << node;
}

// A daemon refuses to start if the kernel of another host has its address.
TEST_F(Addresses, AnAddressInUseIsRefused) {
  ASSERT_TRUE(is_complete());
  stack_.end(1);
  ASSERT_TRUE(stack_.run_until([&] { return !stack_.is_running(1); }));
  const LocalAddress host = answer_arp_for(1);
  stack_.start(1);
  ASSERT_TRUE(stack_.run_until([&] { return !stack_.is_running(1); }));
  EXPECT_THAT(stack_.exit_error(1), HasSubstr(ip(1) + " is in use by " + mac_text(host.mac)));
}

// The network is partitioned while the copy starts, so both run. Errors, logs and statistics name both MAC addresses.
TEST_F(Addresses, BothHostsOfOneNodeAreNamed) {
  stack_.network().partition({0, 0, 0, 1});
  copy(1);
  ASSERT_TRUE(is_complete());
  stack_.run_for(kSecond);
  ASSERT_TRUE(stack_.is_running(kStray)) << stack_.exit_error(kStray);
  stack_.network().heal();
  const auto named = [&](const std::string& text) {
    std::smatch found;
    const std::regex both("rank 1 is used by two machines, (" + std::string(kMac) + ") and (" + kMac + ")");
    return std::regex_search(text, found, both) &&
           std::set<std::string>{found[1], found[2]} == std::set<std::string>{mac(1), mac(kStray)};
  };
  for (const unsigned node : {0U, 2U}) {
    EXPECT_TRUE(stack_.poll_until([&] { return std::ranges::any_of(stack_.log(node), named); }, 30 * kSecond)) << node;
  }
  EXPECT_TRUE(named(stack_.figures(0).ranks.at(0).refused)) << stack_.figures(0).ranks.at(0).refused;
  {
    Trainer trainer(stack_, 0);
    const Outcome ended = trainer.wait(trainer.barrier());
    EXPECT_EQ(ended.code, GRADLANE_FAILED);
    EXPECT_TRUE(named(ended.text)) << ended.text;
  }
  // Each of the two daemons logs the MAC address of the other host.
  EXPECT_TRUE(logs(1, mac(kStray) + " has this node's address " + ip(1) + ", too"));
  EXPECT_TRUE(logs(kStray, mac(1) + " has this node's address " + ip(1) + ", too"));
  EXPECT_EQ(stack_.figures(1).ports.at(0).rival, mac(kStray));
  stack_.end(kStray);
  ASSERT_TRUE(stack_.run_until([&] { return !stack_.is_running(kStray); }));
  EXPECT_TRUE(is_complete());
  TrainerGroup(stack_).expect_works();
}

// The clone has the same MAC address, so ARP does not detect it. Failed operations name both incarnations.
TEST_F(Addresses, ClonesWithOneMacAddressAreToldByTheirLives) {
  ASSERT_TRUE(is_complete());
  Trainer trainer(stack_, 0);
  copy(1, *stack_.config(1).ports[0].mac);
  const std::regex two_lives("rank 1 is used by two machines, process 0x[0-9a-f]+ and process 0x[0-9a-f]+");
  bool named = false;
  for (int i = 0; i < 100 && !named; ++i) {
    const Outcome ended = trainer.wait(trainer.barrier());
    ASSERT_EQ(ended.code, GRADLANE_FAILED) << "a barrier that others have not come to";
    named = std::regex_search(ended.text, two_lives);
  }
  EXPECT_TRUE(named);
}

// The copy asks for its address when its link comes up, and does not use the address as long as another host has it.
TEST_F(Addresses, ALinkThatComesUpLate) {
  for (const unsigned node : {1U, 2U}) stack_.kill(node);
  stack_.run_for(kSecond);
  stack_.network().set_cable(kStray, false, true);
  copy(0);
  stack_.run_for(3 * kSecond);
  ASSERT_TRUE(stack_.is_running(kStray)) << stack_.exit_error(kStray);
  stack_.network().set_cable(kStray, true, true);
  EXPECT_TRUE(logs(kStray, "port e0: " + ip(0) + " is in use by " + mac(0) + ": this node does not use it"));
  EXPECT_STREQ(stack_.figures(kStray).ports.at(0).address, "taken");
  EXPECT_EQ(stack_.figures(kStray).ports.at(0).rival, mac(0));
  // The copy uses the address as soon as it is free.
  stack_.end(0);
  ASSERT_TRUE(stack_.run_until([&] { return !stack_.is_running(0); }));
  stack_.start(1);
  const auto is_known = [&] {
    const auto& neighbours = stack_.figures(1).neighbours;
    return !neighbours.empty() && neighbours[0].mac == mac(kStray);
  };
  EXPECT_TRUE(stack_.poll_until(is_known, 20 * kSecond));
  EXPECT_STREQ(stack_.figures(kStray).ports.at(0).address, "held");
}

// Node 0 has a port for each neighbour. Its ports receive each other's frames, which must not look like a copy.
TEST(TwoPorts, InOneNetwork) {
  Stack stack({.nodes = 3, .spare = 1, .change = [](NodeConfig& it) {
                 if (it.rank != 0) return;
                 PortConfig second = it.ports[0];
                 it.ports[0].nodes = {1};
                 second.name = "e1";
                 second.device = std::to_string(kStray);
                 second.nodes = {2};
                 second.mac = MacAddress{0x02, 0, 0, 0, 0, 0x88};
                 it.ports.push_back(second);
               }});
  // Both ports answer ARP requests for node 0, and the last answer counts. It does not always come from the same port.
  stack.network().set_faults({.reorder = 0.3});
  ASSERT_TRUE(stack.run_until([&] { return stack.is_complete(); }));
  stack.run_for(10 * kSecond);
  for (unsigned node = 0; node < 3; ++node) EXPECT_FALSE(stack.logged(node, "address")) << node;
  TrainerGroup team(stack);
  EXPECT_TRUE(all_succeeded(team.all_reduce(10'000)));
}

// ---- Addresses that move

// Another host takes the address of a node, and other nodes believe it. Then the node comes back. Errors name the rank.
TEST_F(Addresses, AnAddressThatMovesAndComesBack) {
  ASSERT_TRUE(is_complete());
  TrainerGroup team(stack_);
  ASSERT_TRUE(all_succeeded(team.all_reduce(50'000)));
  for (int i = 0; i < 2; ++i) {
    // The node is off the network, and another host answers for its address.
    stack_.network().set_cable(1, false, false);
    const LocalAddress thief = answer_arp_for(1);
    for (const auto& [rank, ended] : team.all_reduce(50'000)) {
      EXPECT_EQ(ended.code, GRADLANE_FAILED);
      EXPECT_THAT(ended.text, rank == 1 ? testing::ContainsRegex("rank [02]") : testing::ContainsRegex("rank 1"));
    }
    const auto believed = [&] { return stack_.figures(0).neighbours.at(1).mac == mac_text(thief.mac); };
    EXPECT_TRUE(stack_.poll_until(believed, 20 * kSecond));
    stack_.set_background(nullptr);
    stack_.network().set_cable(1, true, false);
    team.expect_works(50'000, 120 * kSecond);
  }
  for (unsigned node = 0; node < 3; ++node) EXPECT_EQ(stack_.start_count(node), 1U);
}

}  // namespace
}  // namespace gradlane::test::addresses_test
