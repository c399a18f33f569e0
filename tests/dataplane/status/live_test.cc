// live_test.cc - answers to "stats" about a node while packets flow
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "dataplane/status/admin_answers.h"
#include "dataplane/status/job_watch.h"
#include "tests/dataplane/cluster.h"

namespace gradlane::test::live_test {
namespace {

using nlohmann::json;

const ProcessFacts kProcess{"1.2.3", AdminSocket::Clock::now()};

// Returns a time after everything that happens in these tests.
Nanos long_after() noexcept { return 1000 * kSecond; }

json stats(Node& node) { return json::parse(answer_admin(node, JobWatch(node), kProcess, {"stats"}, long_after).text); }

constexpr size_t kElements = 200'000;

// Two nodes with a trainer each.
class Busy {
 public:
  explicit Busy(const ClusterConfig& config = {}) : cluster(config), trainers{{cluster, 0}, {cluster, 1}} {
    for (Trainer& it : trainers) {
      it.attach();
      it.add_segment(0, kElements * sizeof(float));
    }
  }
  void begin() {
    for (size_t i = 0; i < 2; ++i) {
      cookies[i] = trainers[i].submit(submission_of(OpKind::kAllReduce, ElementType::kFloat32, kElements));
    }
  }
  [[nodiscard]] bool over() {
    return trainers[0].over(cookies[0]).has_value() && trainers[1].over(cookies[1]).has_value();
  }

  Cluster cluster;
  Trainer trainers[2];
  std::array<uint64_t, 2> cookies{};
};

TEST(Status, QuestionsAreAnsweredWhilePacketsFlow) {
  Busy ring;
  ring.begin();
  unsigned answers = 0;
  unsigned in_flight = 0;
  uint64_t received = 0;
  for (unsigned i = 0; i < 1'000'000 && !ring.over(); ++i) {
    ring.cluster.step();
    if (i % 64 != 0) continue;
    const json document = stats(ring.cluster.node(0));
    ++answers;
    in_flight += document.at("in_flight") == 1 ? 1 : 0;
    const uint64_t now_received = document.at("ports")[0].at("queues")[0].at("counters").at("received");
    EXPECT_GE(now_received, received);
    received = now_received;
  }
  ASSERT_TRUE(ring.over());
  EXPECT_EQ(ring.trainers[0].over(ring.cookies[0])->failed, 0U);
  EXPECT_GT(answers, 3U);
  EXPECT_GT(in_flight, 0U);
}

TEST(Status, SaysWhatANodeIsLike) {
  Busy ring;
  ring.begin();
  ASSERT_TRUE(ring.cluster.run_until([&ring] { return ring.over(); }));
  ring.cluster.run_for(150 * kMillisecond);  // figures are published every 100 ms
  for (const auto& node : ring.cluster.nodes()) node->maintain(ring.cluster.now());
  const json document = stats(ring.cluster.node(1));
  EXPECT_EQ(document.at("node"), 1);
  EXPECT_EQ(document.at("nodes"), 2);
  EXPECT_EQ(document.at("version"), "1.2.3");
  EXPECT_EQ(document.at("in_flight"), 0);
  EXPECT_EQ(document.at("auth"), false);
  EXPECT_TRUE(document.at("faults").is_null());
  const json& port = document.at("ports").at(0);
  EXPECT_EQ(port.at("link"), "up");
  EXPECT_EQ(port.at("address"), "held");
  EXPECT_EQ(port.at("mac"), "02:00:00:00:00:0b");
  EXPECT_TRUE(port.at("rival").is_null());
  const json& received = port.at("queues").at(0).at("counters").at("gradlane");
  EXPECT_GT(received, 500);
  EXPECT_LE(received, ring.cluster.counted(1, "gradlane")) << "figures are a little old";
  const json& rank = document.at("ranks").at(0);
  EXPECT_EQ(rank.at("rank"), 1);
  EXPECT_EQ(rank.at("lane"), 0);
  EXPECT_EQ(rank.at("ring"), "whole");
  EXPECT_EQ(rank.at("counters").at("operations_done"), 1);
  EXPECT_EQ(rank.at("links").at(0).at("rank"), 0);
  EXPECT_EQ(rank.at("links").at(0).at("up"), true);
  EXPECT_GT(rank.at("links").at(0).at("rtt_us"), 0);
  EXPECT_LE(document.at("pools").at(0).at("free"), document.at("pools").at(0).at("buffers"));
  EXPECT_EQ(document.at("neighbours").size(), 1U);
}

TEST(Status, HasTimesOfOperationsAndRoundTrips) {
  Busy ring;
  const Nanos began = ring.cluster.now();
  ring.begin();
  ASSERT_TRUE(ring.cluster.run_until([&ring] { return ring.over(); }));
  const Nanos took = ring.cluster.now() - began;
  ring.cluster.run_for(150 * kMillisecond);
  const RankFigures rank = node_figures(ring.cluster.node(0), ring.cluster.now()).ranks.at(0);
  ASSERT_EQ(rank.strategies.size(), 1U);
  EXPECT_STREQ(rank.strategies[0].word, "ring");
  const OperationHistogram& times = rank.strategies[0].times;
  EXPECT_EQ(std::accumulate(times.counts.begin(), times.counts.end(), uint64_t{0}), 1U);
  EXPECT_GT(times.sum, took / 2) << "the last packet's time counts, and not that of the round before";
  EXPECT_LE(times.sum, took);
  const RttHistogram& round_trips = rank.links.at(0).rtt;
  EXPECT_GT(std::accumulate(round_trips.counts.begin(), round_trips.counts.end(), uint64_t{0}), 10U);
  EXPECT_GT(round_trips.sum, 0U);
}

TEST(Status, NamesFaultsMadeOnPurpose) {
  Busy ring({.nodes = 2, .change = [](NodeConfig& it) { it.faults.drop = 0.25; }});
  EXPECT_EQ(stats(ring.cluster.node(0)).at("faults").at("drop"), 0.25);
}

TEST(Status, RefusesOtherQuestions) {
  Cluster cluster;
  for (const char* const request : {"", "stat", "stats ", "probe 99", "probe 30001", "probe x", "worths", "worth x"}) {
    const json document =
        json::parse(answer_admin(cluster.node(0), JobWatch(cluster.node(0)), kProcess, {request}, long_after).text);
    EXPECT_TRUE(document.contains("error")) << request;
  }
}

TEST(Status, ProbesAnswerWhilePacketsFlow) {
  Busy ring;
  ring.cluster.run_for(kMillisecond);
  const JobWatch job(ring.cluster.node(0));
  const AdminAnswer answer = answer_admin(ring.cluster.node(0), job, kProcess, {"probe 500"}, long_after);
  EXPECT_EQ(answer.text, "");
  EXPECT_TRUE(ring.cluster.node(0).prober().running());
  EXPECT_FALSE(answer.later().has_value());
  ring.begin();
  EXPECT_TRUE(ring.cluster.run_until([&ring] { return ring.over(); })) << "the ring does not wait for probes";
}

}  // namespace
}  // namespace gradlane::test::live_test
