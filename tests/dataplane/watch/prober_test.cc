// prober_test.cc - runs of probes over a path that loses packets, changes ToS bytes, or carries short packets only
#include "dataplane/watch/prober.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>

namespace gradlane::test::prober_test {
namespace {

constexpr size_t kOverhead = 28;
constexpr std::array<uint8_t, kProbedClasses> kTos{0x28, 0x20, 0xc0};

// A path to a neighbour in virtual time. A worker polls every 100 us. The control thread steps every 2 ms.
class ProbePath {
 public:
  struct Probe {
    uint8_t there, back;
    size_t ip_bytes;
    unsigned number;  // number of probes that were sent before it
  };

  explicit ProbePath(size_t mtu = 1500) : run_({3, "10.77.0.4", &mac_, kTos, mtu, kOverhead}, board_) {}

  ProbeResult probe(Nanos most = 3 * kSecond) {
    run_.begin(now_, most, 77);
    const Nanos begin = now_;
    while (run_.running()) {
      for (int i = 0; i < 20; ++i) poll();
      run_.step(now_);
      if (now_ >= appears_at) mac_.store(1);
      if (now_ > begin + most + kSecond) {
        ADD_FAILURE() << "does not end";
        break;
      }
    }
    took = now_ - begin;
    return run_.result();
  }

  // Returns whether the probe arrives. May change the probe.
  std::function<bool(Probe&)> passes = [](Probe&) { return true; };
  Nanos rtt = 300 * kMicrosecond;
  Nanos appears_at = 0;
  ProbeIdentity theirs{};
  Nanos took = 0;
  unsigned sent = 0;

 private:
  void poll() {
    now_ += 100 * kMicrosecond;
    ProbeOrder order;
    while (board_.next(now_, order)) {
      Probe probe{order.tos, order.tos, order.bytes + kOverhead, sent++};
      if (!passes(probe)) continue;
      ProbeHeader header{};
      header.id = order.id;
      header.nonce = order.nonce;
      header.tos = order.tos;
      header = reply_to(header, theirs, probe.there, probe.ip_bytes);
      replies_.push_back({header, probe.back, order.bytes, now_ + rtt});
    }
    while (!replies_.empty() && replies_.front().at <= now_) {
      const Reply& reply = replies_.front();
      (void)board_.put_answer(reply.header, reply.tos, reply.bytes, now_);
      replies_.pop_front();
    }
  }

  struct Reply {
    ProbeHeader header;
    uint8_t tos;
    size_t bytes;
    Nanos at;
  };
  std::atomic<uint64_t> mac_{0};
  ProbeBoard board_;
  ProbeRun run_;
  std::deque<Reply> replies_;
  Nanos now_ = kSecond;
};

TEST(Prober, GoodWay) {
  ProbePath way;
  way.theirs.node = 3;
  const ProbeResult result = way.probe();
  EXPECT_TRUE(result.arp);
  EXPECT_EQ(result.sent, 12U);
  EXPECT_EQ(result.answered, 12U);
  EXPECT_TRUE(result.tried);
  EXPECT_EQ(result.largest, 1500U);
  EXPECT_EQ(result.rtt_min, way.rtt);
  EXPECT_EQ(result.rtt_median, way.rtt);
  for (size_t i = 0; i < kProbedClasses; ++i) {
    EXPECT_TRUE(result.tos[i].answered);
    EXPECT_EQ(result.tos[i].sent, kTos[i]);
    EXPECT_EQ(result.tos[i].there, kTos[i]);
    EXPECT_EQ(result.tos[i].back, kTos[i]);
  }
  ASSERT_TRUE(result.theirs);
  EXPECT_EQ(uint16_t{result.theirs->node}, 3);
  EXPECT_LT(way.took, 100 * kMillisecond);
}

TEST(Prober, RunsFollowOneAnother) {
  ProbePath way;
  EXPECT_EQ(way.probe().answered, 12U);
  EXPECT_EQ(way.probe().answered, 12U);
}

TEST(Prober, NobodyAnswersArp) {
  ProbePath way;
  way.appears_at = kNever;
  const ProbeResult result = way.probe();
  EXPECT_FALSE(result.arp);
  EXPECT_EQ(result.sent, 0U);
  EXPECT_FALSE(result.theirs);
  EXPECT_GE(way.took, 3 * kSecond);
}

TEST(Prober, NeighbourStartsLate) {
  ProbePath way;
  way.appears_at = 2 * kSecond;
  const ProbeResult result = way.probe();
  EXPECT_TRUE(result.arp);
  EXPECT_EQ(result.largest, 1500U);
}

TEST(Prober, AddressIsKnownAndNobodyAnswers) {
  ProbePath way;
  way.passes = [](ProbePath::Probe&) { return false; };
  const ProbeResult result = way.probe();
  EXPECT_TRUE(result.arp);
  EXPECT_GT(result.sent, 20U);
  EXPECT_EQ(result.answered, 0U);
  EXPECT_FALSE(result.tried);
  EXPECT_EQ(result.largest, 0U);
  EXPECT_EQ(result.rtt_min, 0U);
  EXPECT_LT(way.took, 3 * kSecond + 100 * kMillisecond);
}

// The limits go from the shortest probe to the MTU.
TEST(Prober, FindsTheLongestThatPasses) {
  for (size_t limit = kOverhead + kLeastProbe; limit <= 1500; limit += limit < 100 || limit > 1490 ? 1 : 37) {
    ProbePath way;
    way.passes = [limit](ProbePath::Probe& probe) { return probe.ip_bytes <= limit; };
    const ProbeResult result = way.probe(10 * kSecond);
    EXPECT_TRUE(result.tried);
    EXPECT_EQ(result.largest, limit);
    EXPECT_LT(way.took, 4 * kSecond);
  }
}

// Three probes in a row are lost in the middle of the search.
TEST(Prober, LossesDoNotMislead) {
  for (unsigned first = 21; first < 45; first += 3) {
    ProbePath way;
    way.passes = [first](ProbePath::Probe& probe) {
      return probe.ip_bytes <= 1400 && (probe.number < first || probe.number >= first + 3);
    };
    EXPECT_EQ(way.probe(10 * kSecond).largest, 1400U) << first;
  }
}

TEST(Prober, RunsOutOfTimeWhileSearching) {
  ProbePath way(9000);
  way.passes = [](ProbePath::Probe& probe) { return probe.ip_bytes <= 1500; };
  const ProbeResult result = way.probe(kSecond);
  EXPECT_TRUE(result.tried);
  EXPECT_LT(result.largest, 1501U);
  EXPECT_LT(way.took, kSecond + 100 * kMillisecond);
}

TEST(Prober, TosIsRewrittenOnOneWay) {
  ProbePath way;
  way.passes = [](ProbePath::Probe& probe) {
    if (probe.there == 0x28) probe.there = 0;
    if (probe.back == 0xc0) probe.back = 0x04;
    return true;
  };
  const ProbeResult result = way.probe();
  EXPECT_EQ(result.tos[0].there, 0);
  EXPECT_EQ(result.tos[0].back, 0x28);
  EXPECT_EQ(result.tos[1].there, 0x20);
  EXPECT_EQ(result.tos[2].there, 0xc0);
  EXPECT_EQ(result.tos[2].back, 0x04);
}

TEST(Prober, OneOfSeveralWaysRewritesTos) {
  ProbePath way;
  way.passes = [](ProbePath::Probe& probe) {
    if (probe.number == 4) probe.there = 0x08;
    return true;
  };
  EXPECT_EQ(way.probe().tos[1].there, 0x08);
}

TEST(Prober, OneClassIsDropped) {
  ProbePath way;
  way.passes = [](ProbePath::Probe& probe) { return probe.there != 0x28; };
  const ProbeResult result = way.probe();
  EXPECT_FALSE(result.tos[0].answered);
  EXPECT_TRUE(result.tos[1].answered);
  EXPECT_EQ(result.largest, 1500U);
}

TEST(Prober, HalfOfThemAreLost) {
  ProbePath way;
  way.passes = [](ProbePath::Probe& probe) { return probe.number % 2 == 0; };
  const ProbeResult result = way.probe();
  for (const auto& tos : result.tos) EXPECT_TRUE(tos.answered);
  EXPECT_EQ(result.largest, 1500U);
}

// ---- Answers that nobody asked for

struct Board : ::testing::Test {
  Board() {
    board.post(5, {.id = 21, .nonce = 9, .tos = 0x28, .bytes = 64});
    EXPECT_TRUE(board.next(1000, order));
    header.id = 21;
    header.nonce = 9;
    header.tos = 0x28;
  }
  ProbeBoard board;
  ProbeOrder order;
  ProbeHeader header{};
};

TEST_F(Board, TakesTheAnswerOnce) {
  EXPECT_TRUE(board.put_answer(header, 0x28, 64, 1500));
  ASSERT_NE(board.answer(5), nullptr);
  EXPECT_EQ(board.answer(5)->rtt, 500U);
  EXPECT_FALSE(board.put_answer(header, 0x28, 64, 1600));
  EXPECT_TRUE(board.clear(5));
  EXPECT_FALSE(board.put_answer(header, 0x28, 64, 1600));
}

TEST_F(Board, RefusesWhatItHasNotAskedFor) {
  header.id = 22;
  EXPECT_FALSE(board.put_answer(header, 0x28, 64, 1500));
  header.id = 21 + ProbeBoard::kSlots;
  EXPECT_FALSE(board.put_answer(header, 0x28, 64, 1500));
  header.id = 21;
  header.nonce = 8;
  EXPECT_FALSE(board.put_answer(header, 0x28, 64, 1500));
  header.nonce = 9;
  EXPECT_FALSE(board.put_answer(header, 0x28, 65, 1500));
  header.tos = 0;
  EXPECT_FALSE(board.put_answer(header, 0x28, 64, 1500));
  header.tos = 0x28;
  EXPECT_TRUE(board.put_answer(header, 0x28, 64, 1500));
}

TEST_F(Board, PacesProbes) {
  board.post(6, {.id = 22, .nonce = 9, .tos = 0x28, .bytes = 64});
  EXPECT_FALSE(board.next(2000, order));
  EXPECT_TRUE(board.next(1000 + ProbeBoard::kPace, order));
  EXPECT_EQ(order.id, 22U);
}

}  // namespace
}  // namespace gradlane::test::prober_test
