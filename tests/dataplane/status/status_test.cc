// status_test.cc - a node's figures as JSON and as lines of the log
#include "dataplane/status/status.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gradlane::test::status_test {
namespace {

using nlohmann::json;

NodeFigures figures() {
  NodeFigures node;
  node.node = 1;
  node.nodes = 3;
  node.config_digest = "0x000000000000abcd";
  node.codec = "fixed:10";
  node.strategies = {"ring", "direct"};
  node.mtu = 9000;
  node.lanes = 2;
  node.trainers = 1;
  node.attached = 1;
  node.in_flight = 4;
  node.ports.push_back({.name = "next",
                        .device = "net_ring0",
                        .driver = "net_ring",
                        .link = "up",
                        .speed_mbps = 10'000,
                        .checksums = "device",
                        .mac = "02:00:00:00:00:01",
                        .address = "held",
                        .rival = "",
                        .steering = "one queue",
                        .queues = {{{"received", "", 7}, {"sent", "", 0}}, {{"received", "", 0}, {"sent", "", 9}}}});
  node.workers.push_back({.busy_us = 12.5});
  node.awaited.push_back({.rank = 3, .awaited_us = 2.5});
  node.pools.push_back({.buffers = 3344, .free = 3300});
  node.neighbours.push_back({.node = 2,
                             .ip = "10.77.0.3",
                             .port = "next",
                             .mac = "",
                             .up = false,
                             .why = "nothing is heard of it",
                             .trouble = "",
                             .speaks_from = "",
                             .path_bytes = 1400,
                             .difference = "",
                             .arp_tries = 5,
                             .forged = 1,
                             .untagged = 2,
                             .tagged = 3,
                             .wrong_tos = 4});
  node.table = {{0, "10.77.0.1", "node-a"}, {1, "10.77.0.2", ""}};
  node.metrics = "0.0.0.0:9400";
  node.ranks.push_back({.rank = 1,
                        .lane = 0,
                        .ring = "incomplete",
                        .missing = 2,
                        .refused = "",
                        .failed = "",
                        .links = {{2, false, 12.5, 10, 3, 40, 2, 61000, 7.5, 50000}},
                        .counters = {{"delivered", "", 11}},
                        .codecs = {{CodecId::kFixed, "fixed", 4000, 700}}});
  return node;
}

const ProcessFigures kProcess = {.version = "0.1.0", .uptime_s = 2.5, .pid = 4711, .rss_kb = 62000};

TEST(Status, TheWholeDocument) {
  const json want = json::parse(R"({
    "node": 1, "nodes": 3, "version": "0.1.0", "uptime_s": 2.5, "pid": 4711, "rss_kb": 62000, "security": "none",
    "config_digest": "0x000000000000abcd", "codec": "fixed:10", "strategies": ["ring", "direct"], "mtu": 9000, "lanes": 2, "trainers": 1,
    "attached": 1, "in_flight": 4, "failed_s_ago": null, "auth": false, "faults": null,
    "ports": [{"name": "next", "device": "net_ring0", "driver": "net_ring", "link": "up", "speed_mbps": 10000, "checksums": "device", "mac": "02:00:00:00:00:01", "address": "held",
               "rival": null, "steering": "one queue",
               "queues": [{"queue": 0, "counters": {"received": 7, "sent": 0}},
                          {"queue": 1, "counters": {"received": 0, "sent": 9}}]}],
    "workers": [{"busy_us": 12.5}],
    "awaited": [{"rank": 3, "awaited_us": 2.5}],
    "pools": [{"lane": 0, "buffers": 3344, "free": 3300}],
    "table": [{"node": 0, "address": "10.77.0.1", "reach": "node-a"}, {"node": 1, "address": "10.77.0.2", "reach": null}],
    "metrics": "0.0.0.0:9400",
    "neighbours": [{"node": 2, "ip": "10.77.0.3", "port": "next", "mac": null, "state": "missing",
                    "why": "nothing is heard of it", "trouble": "", "speaks_from": "", "path_mtu": 1400, "difference": "",
                    "arp_tries": 5, "forged": 1, "untagged": 2, "tagged": 3, "wrong_tos": 4}],
    "ranks": [{"rank": 1, "lane": 0, "ring": "incomplete", "missing": 2, "refused": "", "failed": "",
               "links": [{"rank": 2, "up": false, "rtt_us": 12.5, "window": 10.0, "in_flight": 3,
                         "sent": 40, "resent": 2, "bytes": 61000, "full_us": 7.5, "full_bytes": 50000}],
               "counters": {"delivered": 11},
               "codecs": [{"codec": "fixed", "element_bytes": 4000, "run_bytes": 700}]}],
    "plan": []})");
  EXPECT_EQ(status_json(figures(), kProcess), want) << status_json(figures(), kProcess).dump(1);
}

TEST(Status, WhatIsNotAlwaysThere) {
  NodeFigures node = figures();
  node.failed_s_ago = 1.5;
  node.auth = true;
  node.faults.drop = 0.25;
  node.faults.seed = 7;
  node.ports[0].rival = "02:00:00:00:00:09";
  node.neighbours[0].mac = "02:00:00:00:00:03";
  node.neighbours[0].up = true;
  node.ranks[0].missing.reset();
  const json document = status_json(node, kProcess);
  EXPECT_EQ(document["failed_s_ago"], 1.5);
  EXPECT_EQ(document["auth"], true);
  EXPECT_EQ(document["faults"]["drop"], 0.25);
  EXPECT_EQ(document["faults"]["seed"], 7);
  EXPECT_EQ(document["ports"][0]["rival"], "02:00:00:00:00:09");
  EXPECT_EQ(document["neighbours"][0]["mac"], "02:00:00:00:00:03");
  EXPECT_EQ(document["neighbours"][0]["state"], "up");
  EXPECT_TRUE(document["ranks"][0]["missing"].is_null());
}

TEST(Status, LinesOfTheLogLeaveOutZeros) {
  EXPECT_EQ(counter_lines(figures()),
            (std::vector<std::string>{"port next queue 0: received 7", "port next queue 1: sent 9",
                                      "rank 1 lane 0: delivered 11"}));
}

}  // namespace
}  // namespace gradlane::test::status_test
