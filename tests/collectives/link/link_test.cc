// link_test.cc - tests of one link: delivery exactly once, recovery, acknowledgements, credit
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "tests/collectives/link/link_fixture.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test::link_test {
namespace {

TEST(Link, DeliversEverythingOnceWithoutRetransmissions) {
  for (const size_t window : {size_t{2}, size_t{4}, size_t{16}, size_t{128}, size_t{4096}}) {
    for (const uint32_t back : {0U, 1U, 500U, 3000U}) {
      SCOPED_TRACE(testing::Message() << "window " << window << ", " << back << " back");
      Pair pair(window, window);
      EXPECT_TRUE(pair.run(3000, back, 5 * kSecond));
      EXPECT_EQ(pair.count(Counter::kRetransmitTimeout) + pair.count(Counter::kRetransmitSack), 0U);
      EXPECT_EQ(pair.count(Counter::kDataSent), 3000U + back);
      EXPECT_EQ(pair.a.duplicates + pair.b.duplicates, 0U);
      EXPECT_LE(pair.a.held, 1U);  // the buffer for acknowledgements
      // Acknowledgements are sent in data packets if there are any.
      if (back == 0) {
        EXPECT_LE(pair.a.bare, 3020U / (window < 8 ? 1 : 3));
      } else if (back == 3000 && window > 16) {
        EXPECT_LE(pair.count(Counter::kAckSent), 1000U);
      }
    }
  }
}

// The wire loses, duplicates and delays packets. The owner is busy, has few buffers, and refuses packets. All of that
// happens together.
TEST(Link, DeliversEverythingOnceOverABadWire) {
  for (const size_t window : {size_t{2}, size_t{8}, size_t{64}, size_t{256}}) {
    for (const size_t other : {size_t{2}, size_t{64}}) {
      for (const unsigned percent : {1U, 10U, 40U}) {
        SCOPED_TRACE(testing::Message() << "windows " << window << " and " << other << ", " << percent << " %");
        Rng rng(window + other + percent);
        Pair pair(window, other);
        const auto chance = [&rng](unsigned of_100) { return rng.below(100) < of_100; };
        const auto fate = [&](const LinkHeader&) {
          Fate it;
          if (chance(percent)) it.copies = 0;
          if (chance(percent / 2)) it.copies = 2;
          if (chance(percent)) it.later = rng.below(10 * kDelay);
          return it;
        };
        pair.fate_ab = pair.fate_ba = fate;
        pair.a.busy = pair.b.busy = [&] { return chance(percent / 2); };
        pair.a.refuse = pair.b.refuse = [&](uint32_t) { return chance(5); };
        pair.a.buffers = 3;
        pair.b.buffers = 20;
        EXPECT_TRUE(pair.run(500, 300, 600 * kSecond)) << pair.b.arrived.size() << ", " << pair.a.arrived.size();
      }
    }
  }
}

// ---- Recovery

// Returns a function that loses the first transmission of these packets.
std::function<Fate(const LinkHeader&)> lose_once(std::set<uint32_t> sequences) {
  return [sequences = std::move(sequences)](const LinkHeader& header) mutable {
    if (header.kind != PacketKind::kData) return Fate{};
    return sequences.erase(header.sequence) != 0 ? Fate{0, 0} : Fate{};
  };
}

TEST(Link, WhatLaterPacketsShowToBeLostIsSentAgainWithinARoundTrip) {
  Pair pair(128, 128);
  ASSERT_TRUE(pair.run(100, 0, kSecond));  // the round-trip time is known now
  pair.fate_ab = lose_once({105, 106, 110, 128});
  const Nanos begin = pair.now;
  EXPECT_TRUE(pair.run(150, 0, kSecond));
  EXPECT_EQ(pair.count(Counter::kRetransmitSack), 4U);
  EXPECT_EQ(pair.count(Counter::kRetransmitTimeout), 0U);
  EXPECT_EQ(pair.b.duplicates, 0U);
  EXPECT_LE(pair.now, begin + 4 * kRtt);
}

// Totals belong to one link, while counters are sums over all links. A window of 2 is full nearly all the time, a large
// one never.
TEST(Link, TotalsSayWhatItSentAndHowLongItWasFull) {
  Pair small(2, 2);
  small.fate_ab = lose_once({5});
  const Nanos begin = small.now;
  ASSERT_TRUE(small.run(100, 0, kSecond));
  const LinkTotals totals = small.a.link.totals();
  EXPECT_EQ(totals.sent, 100U);
  EXPECT_EQ(totals.resent, 1U);
  EXPECT_EQ(totals.bytes + small.b.link.totals().bytes, small.count(Counter::kDataBytes));
  EXPECT_GT(totals.full, (small.now - begin) / 2);
  EXPECT_LE(totals.full, small.now - begin);

  Pair large(128, 128);
  ASSERT_TRUE(large.run(10, 0, kSecond));  // the neighbour's window is known now
  const Nanos full = large.a.link.totals().full;
  ASSERT_TRUE(large.run(20, 0, kSecond));
  EXPECT_EQ(large.a.link.totals().full, full);
}

TEST(Link, ALostRetransmissionIsFoundTheSameWay) {
  Pair pair(1024, 1024);
  ASSERT_TRUE(pair.run(200, 0, kSecond));
  unsigned losses = 0;
  pair.fate_ab = [&](const LinkHeader& header) {
    const bool lost = header.kind == PacketKind::kData && header.sequence == 210 && losses < 3;
    losses += lost ? 1 : 0;
    return lost ? Fate{0, 0} : Fate{};
  };
  EXPECT_TRUE(pair.run(800, 0, kSecond));
  EXPECT_EQ(losses, 3U);
  EXPECT_EQ(pair.count(Counter::kRetransmitSack), 3U);
  EXPECT_EQ(pair.count(Counter::kRetransmitTimeout), 0U);
}

// No packet follows the last one, so only time shows that it was lost.
TEST(Link, TheLastPacketIsSentAgainAfterSomeTime) {
  Pair pair(128, 128);
  ASSERT_TRUE(pair.run(100, 0, kSecond));
  pair.fate_ab = lose_once({149});
  const Nanos begin = pair.now;
  EXPECT_TRUE(pair.run(150, 0, kSecond));
  EXPECT_EQ(pair.count(Counter::kRetransmitTimeout), 1U);
  EXPECT_GE(pair.now, begin + kMillisecond / 5);
  EXPECT_LE(pair.now, begin + kMillisecond);
}

// All acknowledgements of a window get lost. A probe of one packet makes the neighbour acknowledge all others again,
// sooner than the timeout. Only one probe goes.
TEST(Link, OneProbeShowsWhatHasArrived) {
  ExchangeConfig config = with_window(128);
  config.min_rto = 5 * kMillisecond;
  Pair pair(config, config);
  ASSERT_TRUE(pair.run(100, 0, kSecond));
  unsigned data = 0;
  bool probed = false;
  pair.fate_ab = [&](const LinkHeader& header) {
    data += header.kind == PacketKind::kData ? 1 : 0;
    probed |= data > 10;
    return Fate{};
  };
  pair.fate_ba = [&](const LinkHeader&) { return Fate{probed ? 1U : 0U, 0}; };
  const Nanos begin = pair.now;
  EXPECT_TRUE(pair.run(110, 0, kSecond));
  EXPECT_EQ(data, 11U);
  EXPECT_EQ(pair.count(Counter::kRetransmitTimeout), 1U);
  EXPECT_EQ(pair.b.duplicates, 1U);
  EXPECT_GE(pair.now, begin + kMillisecond);
  EXPECT_LE(pair.now, begin + 2 * kMillisecond);

  data = 0;
  pair.fate_ba = [](const LinkHeader&) { return Fate{0, 0}; };
  EXPECT_FALSE(pair.run(120, 0, 5 * kMillisecond));
  EXPECT_EQ(data, 11U);
}

// The last packets get lost, fewer than later ones would show. The acknowledgement of the probe shows that.
TEST(Link, AProbeShowsWhatWasLostBeforeIt) {
  ExchangeConfig config = with_window(128);
  config.min_rto = 5 * kMillisecond;
  Pair pair(config, config);
  ASSERT_TRUE(pair.run(100, 0, kSecond));
  pair.fate_ab = lose_once({107, 108, 109});
  const Nanos begin = pair.now;
  EXPECT_TRUE(pair.run(110, 0, kSecond));
  EXPECT_EQ(pair.count(Counter::kRetransmitTimeout), 1U);
  EXPECT_EQ(pair.count(Counter::kRetransmitSack), 2U);
  EXPECT_EQ(pair.b.duplicates, 0U);
  EXPECT_LE(pair.now, begin + 2 * kMillisecond);
}

// A report of missing segments is enough: neither later packets nor the timeout are needed. Reports of packets that are
// not in flight have no effect, nor have those that come sooner than a round trip. If a packet is only overdue, that is
// the usual one, not the shortest.
TEST(Link, APacketWithMissingSegmentsIsSentAgainAtOnce) {
  Pair pair(128, 128);
  ASSERT_TRUE(pair.run(100, 0, kSecond));
  pair.fate_ab = lose_once({149});
  EXPECT_FALSE(pair.run(150, 0, kRtt / 2));
  const auto report = [&pair](uint32_t sequence, bool overdue) {
    pair.a.link.send_missing({.sequence = sequence, .arrived = 1, .overdue = overdue}, pair.now);
  };
  report(149, false);
  report(149, true);
  EXPECT_FALSE(pair.run(150, 0, 3 * kRtt));
  for (const uint32_t other : {0U, 148U, 150U, 1U << 31}) report(other, false);
  EXPECT_EQ(pair.count(Counter::kRetransmitSack), 0U);
  report(149, false);
  EXPECT_TRUE(pair.run(150, 0, 2 * kRtt));
  EXPECT_EQ(pair.count(Counter::kRetransmitSack), 1U);
  EXPECT_EQ(pair.count(Counter::kRetransmitTimeout), 0U);
}

// A packet with an old stamp, which a retransmission has completed, does not change the stamp that is echoed.
TEST(Link, StampsOnlyAdvance) {
  End end(with_window(8), 1);
  Bytes sent;
  end.send = [&sent](Bytes packet) { sent = std::move(packet); };
  end.link.reset(7);
  end.link.set_up(kSecond);
  const auto hear = [&end](uint32_t stamp, Nanos now) {
    LinkHeader header{};
    header.stamp = stamp;
    end.link.acknowledge(header, now);
  };
  hear(1001, kSecond);
  hear(901, kSecond + 64);
  ASSERT_TRUE(end.link.send_bare(PacketKind::kAck, {}, kSecond + 640));
  EXPECT_EQ(load<LinkHeader>(sent.data()).echo, 1011U);  // the later stamp, and 10 units of 64 ns
}

// Hardware that still has the first transmission must not see its bytes change.
TEST(Link, WhatIsStillReadIsSentAgainFromAnotherBuffer) {
  for (const bool is_read : {false, true}) {
    Pair pair(128, 128);
    pair.a.reads = [&](Packet) { return is_read; };
    pair.fate_ab = lose_once({0});
    pair.a.pump(1, pair.now);
    EXPECT_TRUE(pair.run(1, 0, kSecond));
    ASSERT_GE(pair.a.sent_from.size(), 2U);
    EXPECT_EQ(pair.a.sent_from[0] == pair.a.sent_from[1], !is_read);
    EXPECT_EQ(pair.a.counters[Counter::kRetransmitTimeout], 1U);
  }
}

TEST(Link, WhatIsStillReadWaitsForABuffer) {
  Pair pair(128, 128);
  pair.a.reads = [](Packet) { return true; };
  pair.fate_ab = lose_once({0});
  pair.a.pump(1, pair.now);
  pair.a.buffers = pair.a.held;
  pair.run_until(pair.now + 100 * kMillisecond);
  EXPECT_TRUE(pair.b.arrived.empty());
  EXPECT_GT(pair.a.counters[Counter::kTransmitBusy], 0U);
  pair.a.buffers += 2;
  EXPECT_TRUE(pair.run(1, 0, kSecond));
}

// After a probe, the timeout doubles, up to a sixteenth of the peer's timeout. It is short again after an
// acknowledgement.
TEST(Link, TimeoutsBackOff) {
  Pair pair(128, 128);
  ASSERT_TRUE(pair.run(100, 0, kSecond));
  std::vector<Nanos> sent;
  pair.fate_ab = [&](const LinkHeader& header) {
    if (header.kind == PacketKind::kData) sent.push_back(pair.now);
    return Fate{0, 0};
  };
  EXPECT_FALSE(pair.run(101, 0, kSecond));
  ASSERT_GE(sent.size(), 12U);
  EXPECT_LT(sent[1] - sent[0], kMillisecond / 2);
  for (size_t i = 3; i < sent.size(); ++i) {
    const Nanos gap = sent[i] - sent[i - 1];
    EXPECT_NEAR(static_cast<double>(gap),
                static_cast<double>(std::min<Nanos>(kMillisecond << (i - 2), 125 * kMillisecond)),
                0.1 * static_cast<double>(gap));
  }
  pair.fate_ab = nullptr;
  EXPECT_TRUE(pair.run(101, 0, 130 * kMillisecond));
  pair.fate_ab = lose_once({150});
  const Nanos begin = pair.now;
  EXPECT_TRUE(pair.run(151, 0, kSecond));
  EXPECT_LE(pair.now, begin + 2 * kMillisecond);
}

// Delayed packets do not count as lost while fewer than three other packets overtake them.
TEST(Link, ALittleReorderingIsNoLoss) {
  Pair pair(16, 16);
  pair.fate_ab = [](const LinkHeader& header) {
    return Fate{1, header.kind == PacketKind::kData && header.sequence % 8 == 3 ? 5 * kSpacing / 2 : 0};
  };
  EXPECT_TRUE(pair.run(2000, 0, kSecond));
  EXPECT_EQ(pair.count(Counter::kRetransmitSack) + pair.count(Counter::kRetransmitTimeout), 0U);
}

// ---- Acknowledgements, credit, keep-alive

TEST(Link, AcknowledgesAfterAMomentOrAFewPackets) {
  Pair pair(128, 128);
  ASSERT_TRUE(pair.run(100, 0, kSecond));
  for (const uint32_t packets : {1U, 3U, 4U, 8U}) {
    const unsigned before = pair.a.bare;
    const Nanos begin = pair.now;
    const auto end = pair.a.sent + packets;
    EXPECT_TRUE(pair.run(end, 0, kSecond));
    EXPECT_LE(pair.now, begin + kRtt + 26 * kMicrosecond);
    EXPECT_EQ(pair.a.bare - before, (packets + 3) / 4) << packets;
  }
  // A missing packet is reported at once, so its sender knows of the loss one round trip later.
  pair.fate_ab = lose_once({pair.a.sent});
  const unsigned before = pair.a.bare;
  EXPECT_TRUE(pair.run(pair.a.sent + 4, 0, kSecond));
  EXPECT_GE(pair.a.bare - before, 2U);
}

// A sender that retransmits a packet has not received its acknowledgement.
TEST(Link, AcknowledgesDuplicatesAtOnce) {
  Pair pair(128, 128);
  ASSERT_TRUE(pair.run(100, 0, kSecond));
  bool lost = false;
  pair.fate_ba = [&](const LinkHeader&) { return std::exchange(lost, true) ? Fate{} : Fate{0, 0}; };
  const Nanos begin = pair.now;
  EXPECT_TRUE(pair.run(101, 0, kSecond));
  EXPECT_EQ(pair.b.duplicates, 1U);
  EXPECT_LE(pair.now, begin + 2 * kMillisecond);
}

// The measured round-trip time is that of the wire, without the time that acknowledgements wait.
TEST(Link, MeasuresTheWire) {
  Pair pair(16, 16);  // windows too small for packets to queue
  EXPECT_TRUE(pair.run(1000, 0, kSecond));
  EXPECT_TRUE(pair.a.link.rtt().known());
  EXPECT_NEAR(static_cast<double>(pair.a.link.rtt().least()), static_cast<double>(kRtt), 300);
  EXPECT_NEAR(static_cast<double>(pair.a.link.rtt().smoothed()), static_cast<double>(kRtt), 3000);
}

// A neighbour with a smaller window never gets more than it can take, from the first packet on.
TEST(Link, KeepsToTheCredit) {
  for (const size_t other : {size_t{2}, size_t{4}, size_t{32}}) {
    SCOPED_TRACE(other);
    Pair pair(256, other);
    uint32_t most = 0;
    pair.fate_ab = [&](const LinkHeader& header) {
      if (header.kind == PacketKind::kData) most = std::max(most, header.sequence + 1 - pair.b.in_order);
      return Fate{};
    };
    EXPECT_TRUE(pair.run(500, 0, 5 * kSecond));
    EXPECT_LE(most, other);
  }
}

TEST(Link, SaysNowAndThenThatItLives) {
  Pair pair(16, 16);
  pair.run_until(pair.now + 10 * kSecond);
  // Each end sends a keep-alive every eighth of a second.
  EXPECT_NEAR(static_cast<double>(pair.a.bare), 80, 2);
  EXPECT_NEAR(static_cast<double>(pair.b.bare), 80, 2);
  EXPECT_LE(pair.now - pair.a.link.last_heard(), 130 * kMillisecond);
}

// ---- Sessions

TEST(Link, ResetGivesEverythingBack) {
  Pair pair(64, 64);
  pair.fate_ab = [](const LinkHeader&) { return Fate{0, 0}; };
  EXPECT_FALSE(pair.run(1000, 0, 10 * kMillisecond));
  EXPECT_GT(pair.a.held, 1U);
  pair.a.link.reset(8);
  EXPECT_EQ(pair.a.held, 0U);
  EXPECT_EQ(pair.a.link.in_flight(), 0U);
  EXPECT_FALSE(pair.a.link.can_send());
  EXPECT_FALSE(pair.a.link.can_send_control());
  EXPECT_EQ(pair.a.link.deadline(), kNever);
  pair.a.link.poll(pair.now);
  pair.a.link.flush(pair.now);
  EXPECT_EQ(pair.a.held, 0U);
}

// ---- Acknowledgements that no neighbour sends

// Acknowledgements may have any numbers. The worst result is that the link believes them and gives buffers back too
// early. It never gives a buffer back twice, and never exceeds the window.
TEST(Link, SurvivesAnyAcknowledgement) {
  Rng rng(9);
  for (unsigned round = 0; round < 200; ++round) {
    const size_t window = size_t{2} << rng.below(7);
    Pair pair(window, window);
    pair.fate_ab = pair.fate_ba = [](const LinkHeader&) { return Fate{0, 0}; };
    for (unsigned step = 0; step < 100; ++step) {
      (void)pair.run(pair.a.sent + 5, 0, rng.below(3 * kMillisecond));
      LinkHeader header{};
      header.ack = rng.one_in(2) ? rng.bits() : static_cast<uint32_t>(rng.below(pair.a.sent + 3));
      header.sack = uint64_t{rng.bits()} << 32 | rng.bits();
      if (rng.one_in(2)) header.sack >>= rng.below(64);
      header.sack_from = static_cast<uint16_t>(rng.one_in(2) ? rng.bits() : rng.below(5));
      header.credit = static_cast<uint16_t>(rng.bits());
      header.stamp = rng.bits();
      header.echo = rng.one_in(2) ? rng.bits() : 0;
      pair.a.link.acknowledge(header, pair.now);
      ASSERT_LE(pair.a.link.in_flight(), window);
      ASSERT_LE(pair.a.held, pair.a.link.in_flight() + 1);
      ASSERT_GE(pair.a.held, pair.a.link.in_flight());
    }
  }
}

}  // namespace
}  // namespace gradlane::test::link_test
