// ring_test.cc - what `gradlane check` makes of a daemon's answer: links, neighbours, and whose an address is
#include "tools/check/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/loader.h"

namespace gradlane::test::check_ring_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

NodeConfig config() {
  return parse_config(
      "rank: 0\nnodes: [{rank: 0, ip: 10.77.0.1}, {rank: 1, ip: 10.77.0.2}]\n"
      "ports: [{name: a, device: net_tap0}]\n",
      "two.yaml");
}

json document() {
  const json tos = {{"class", "raw"}, {"sent", "0x20"}, {"there", "0x20"}, {"back", "0x20"}};
  const json probe = {
      {"node", 1},
      {"ip", "10.77.0.2"},
      {"arp", true},
      {"sent", 9},
      {"answered", 9},
      {"rtt_us", {{"min", 10.0}, {"median", 12.0}}},
      {"mtu_ok", true},
      {"tos", {tos}},
      {"config", {{"node", 1}, {"nodes", 2}, {"mtu", 1500}, {"codec", "raw"}, {"protocol", kProtocolVersion}}},
      {"digest", {{"ours", "1"}, {"theirs", "1"}}}};
  return {{"codec", "raw"},
          {"ports", {{{"name", "a"}, {"link", "up"}, {"address", "held"}}}},
          {"neighbours", {{{"node", 1}, {"port", "a"}}}},
          {"probes", {probe}}};
}

// The lines that say that something is wrong.
std::vector<std::string> failures(const json& document) {
  CheckReport report;
  check_ports(config(), document, report);
  check_neighbours(config(), document, report);
  std::vector<std::string> lines;
  const json all = report.json();
  for (const json& item : all["items"]) {
    if (item["verdict"] == "FAIL")
      lines.push_back(item["what"].get<std::string>() + ": " + item["why"].get<std::string>());
  }
  EXPECT_EQ(report.good(), lines.empty());
  return lines;
}

TEST(CheckRing, ARingWithoutFaults) { EXPECT_THAT(failures(document()), IsEmpty()); }

TEST(CheckRing, RoutersMayMarkCongestion) {
  json marked = document();
  marked["probes"][0]["tos"][0]["there"] = "0x23";
  marked["probes"][0]["tos"][0]["back"] = "0x21";
  EXPECT_THAT(failures(marked), IsEmpty());
}

TEST(CheckRing, ADscpThatChangesOnTheWay) {
  for (const char* const way : {"there", "back"}) {
    json rewritten = document();
    rewritten["probes"][0]["tos"][0][way] = "0x00";
    EXPECT_THAT(failures(rewritten), testing::ElementsAre(HasSubstr("0x20 arrives as 0x00"))) << way;
  }
}

TEST(CheckRing, SomebodyElseHasTheAddress) {
  json shared = document();
  shared["ports"][0]["rival"] = "02:00:00:00:00:07";
  EXPECT_THAT(failures(shared), testing::ElementsAre(HasSubstr("02:00:00:00:00:07 has it, too")));
  shared["ports"][0]["address"] = "taken";
  EXPECT_THAT(failures(shared), testing::ElementsAre(HasSubstr("it is in use by 02:00:00:00:00:07")));
}

TEST(CheckRing, WhatNeighboursDifferIn) {
  json other = document();
  other["probes"][0]["config"]["mtu"] = 9000;
  EXPECT_THAT(failures(other), testing::ElementsAre(HasSubstr("mtu is 1500 here and 9000 there")));
  other = document();
  other["probes"][0]["digest"]["theirs"] = "2";
  EXPECT_THAT(failures(other), testing::ElementsAre(HasSubstr("something in `nodes`")));
}

TEST(CheckRing, PacketsThatAreTooLongForTheWay) {
  json narrow = document();
  narrow["probes"][0]["mtu_ok"] = false;
  narrow["probes"][0]["largest_ok"] = 1400;
  EXPECT_THAT(failures(narrow), testing::ElementsAre(HasSubstr("the largest that gets there and back has 1400 bytes")));
}

}  // namespace
}  // namespace gradlane::test::check_ring_test
