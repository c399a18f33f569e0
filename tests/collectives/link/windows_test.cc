// windows_test.cc - tests of receive window, round-trip times and congestion window, compared with simple models
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "collectives/exchange_config.h"
#include "collectives/link/congestion.h"
#include "collectives/link/receive_window.h"
#include "collectives/link/rtt.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test::windows_test {
namespace {

// ---- ReceiveWindow

using Place = ReceiveWindow::Place;

// A model that stores all numbers that have arrived.
struct ModelWindow {
  explicit ModelWindow(uint32_t window) : size(window) {}

  [[nodiscard]] uint32_t next() const {
    uint32_t number = 0;
    for (const uint32_t each : arrived) {
      if (each != number) break;
      ++number;
    }
    return number;
  }
  [[nodiscard]] Place place(uint32_t number) const {
    if (arrived.contains(number)) return Place::kDuplicate;
    if (number >= next() + size) return Place::kTooFar;
    return Place::kNew;
  }

  uint32_t size;
  std::set<uint32_t> arrived;
};

void expect_alike(const ReceiveWindow& window, const ModelWindow& model, uint32_t latest) {
  const uint32_t next = model.next();
  ASSERT_EQ(window.next(), next);
  const auto sack = window.sack();
  const uint32_t first = next + 1 + sack.from;
  for (unsigned bit = 0; bit < 64; ++bit) {
    ASSERT_EQ((sack.bits >> bit & 1) != 0, model.arrived.contains(first + bit)) << bit;
  }
  // The latest arrival is always reported, whether it came for the first time or again.
  if (latest > next) {
    ASSERT_GE(latest, first);
    ASSERT_LT(latest, first + 64);
  }
}

TEST(ReceiveWindow, IsLikeASet) {
  Rng rng(1);
  for (size_t size = kMinWindow; size <= kMaxWindow; size *= 2) {
    SCOPED_TRACE(size);
    ReceiveWindow window(size);
    EXPECT_EQ(window.size(), size);
    for (unsigned round = 0; round < 3; ++round) {
      window.reset();
      ModelWindow model(static_cast<uint32_t>(size));
      // Numbers come mostly in order, mostly at random, or with the first one missing for long.
      const size_t steps = size > 512 ? 300 : 600;
      for (size_t step = 0; step < steps; ++step) {
        const uint32_t next = model.next();
        uint32_t number = next + static_cast<uint32_t>(rng.below(round == 0 ? 3 : size + 5));
        if (round == 2 && number == next && !rng.one_in(20)) number += 1;
        if (rng.one_in(10)) number = static_cast<uint32_t>(rng.below(next + 1));
        ASSERT_EQ(window.place(number), model.place(number)) << number << ", next " << next;
        if (model.place(number) == Place::kTooFar) continue;
        if (model.place(number) == Place::kNew) {
          window.accept(number);
        } else {
          window.repeat(number);
        }
        model.arrived.insert(number);
        ASSERT_NO_FATAL_FAILURE(expect_alike(window, model, number));
      }
    }
  }
}

TEST(ReceiveWindow, FillsToTheLastPlaceAndEmptiesAtOnce) {
  for (size_t size = kMinWindow; size <= kMaxWindow; size *= 2) {
    ReceiveWindow window(size);
    const auto places = static_cast<uint32_t>(size);
    for (uint32_t base = 0; base < 5 * places; base += places) {
      for (uint32_t i = places - 1; i > 0; --i) {
        ASSERT_EQ(window.place(base + i), Place::kNew);
        window.accept(base + i);
      }
      ASSERT_EQ(window.next(), base);
      ASSERT_EQ(window.place(base + places), Place::kTooFar);
      window.accept(base);
      ASSERT_EQ(window.next(), base + places);
      ASSERT_EQ(window.sack().bits, 0U);
      ASSERT_EQ(window.sack().from, 0U);
    }
  }
}

// Numbers up to 2^31 behind are old, numbers up to 2^31 ahead are too far.
TEST(ReceiveWindow, NumbersWrap) {
  ReceiveWindow window(128);
  for (uint32_t i = 0; i < 10; ++i) window.accept(i);
  EXPECT_EQ(window.place(9), Place::kDuplicate);
  EXPECT_EQ(window.place(10), Place::kNew);
  EXPECT_EQ(window.place(137), Place::kNew);
  EXPECT_EQ(window.place(138), Place::kTooFar);
  EXPECT_EQ(window.place(0x80000009), Place::kTooFar);
  EXPECT_EQ(window.place(0x8000000a), Place::kDuplicate);
  EXPECT_EQ(window.place(0xffffffff), Place::kDuplicate);
}

// ---- RttEstimator

// The timeout differs from RFC 6298 only in its margin, which is larger where that costs little.
TEST(RttEstimator, SmoothsAsRfc6298Says) {
  Rng rng(2);
  for (unsigned round = 0; round < 20; ++round) {
    RttEstimator estimator(kMillisecond, 100 * kMillisecond);
    EXPECT_FALSE(estimator.known());
    double smoothed = 0;
    double deviation = 0;
    Nanos now = 12345;
    const Nanos typical = Nanos{1000} << rng.below(14);
    for (unsigned step = 0; step < 200; ++step) {
      const Nanos rtt = 1 + typical / 2 + rng.below(typical) * (rng.one_in(10) ? 10 : 1);
      const auto exact = static_cast<double>(rtt);
      if (step == 0) {
        smoothed = exact;
        deviation = exact / 2;
      } else {
        deviation = 0.75 * deviation + 0.25 * std::fabs(smoothed - exact);
        smoothed = 0.875 * smoothed + 0.125 * exact;
      }
      now += rng.below(10 * kMillisecond);
      estimator.sample(rtt, now);
      ASSERT_TRUE(estimator.known());
      ASSERT_NEAR(static_cast<double>(estimator.smoothed()), smoothed, 20);
      const double timeout = std::min(smoothed + std::max({4 * deviation, smoothed, 1e6}), 1e8);
      ASSERT_NEAR(static_cast<double>(estimator.timeout(0)), timeout, 200);
    }
  }
}

TEST(RttEstimator, TimeoutDoublesUpToTheMost) {
  RttEstimator estimator(kMillisecond, 125 * kMillisecond);
  const Nanos unknown = estimator.timeout(0);
  EXPECT_GE(unknown, 10 * kMillisecond);  // the path may be slow
  EXPECT_EQ(estimator.timeout(1), 2 * unknown);
  estimator.sample(50 * kMicrosecond, 0);
  for (unsigned backoff = 0; backoff < 7; ++backoff) {
    EXPECT_EQ(estimator.timeout(backoff), (kMillisecond + 50 * kMicrosecond) << backoff);
  }
  for (unsigned backoff = 7; backoff <= 10; ++backoff) EXPECT_EQ(estimator.timeout(backoff), 125 * kMillisecond);
  // If the shortest timeout is longer than the longest one, the shortest one is used.
  EXPECT_EQ(RttEstimator(kSecond, kMillisecond).timeout(3), kSecond);
}

// The estimator reports the least time of the last 10 to 20 s.
TEST(RttEstimator, ForgetsTheLeast) {
  RttEstimator estimator(kMillisecond, 100 * kMillisecond);
  Nanos now = 5 * kSecond;
  estimator.sample(20'000, now);
  EXPECT_EQ(estimator.least(), 20'000U);
  for (; now < 14 * kSecond; now += 100 * kMillisecond) estimator.sample(50'000, now);
  EXPECT_EQ(estimator.least(), 20'000U);
  for (; now < 26 * kSecond; now += 100 * kMillisecond) estimator.sample(50'000, now);
  EXPECT_EQ(estimator.least(), 50'000U);
  estimator.sample(30'000, now);
  EXPECT_EQ(estimator.least(), 30'000U);
}

// ---- ReturnQueue

// Two clocks may differ by any number, in stamps of 64 ns. The path takes 300 stamps. The queue finds the wait beyond
// that, wherever the difference wraps.
TEST(ReturnQueue, IsTheWaitBeyondThePath) {
  Rng rng(4);
  for (const uint32_t difference : {0U, 1U, 1000U, 0x7fffffffU, 0x80000000U, 0xfffffed4U, 0xffffffffU}) {
    ReturnQueue queue;
    Nanos time = kSecond;
    const auto sample = [&](uint32_t wait) {
      const auto now = static_cast<uint32_t>(time >> 6);
      return queue.sample(now, now - 300 - wait + difference, time);
    };
    EXPECT_EQ(sample(0), 0U);
    for (unsigned i = 0; i < 5000; ++i) {
      time += rng.below(100 * kMicrosecond);
      const auto wait = static_cast<uint32_t>(rng.below(3) * rng.below(2000));
      ASSERT_EQ(sample(wait), wait) << difference;
    }
  }
}

// If the path becomes longer, its new length is accepted after a while.
TEST(ReturnQueue, ForgetsTheLeast) {
  ReturnQueue queue;
  Nanos time = kSecond;
  EXPECT_EQ(queue.sample(5000, 4700, time), 0U);
  for (const Nanos end = time + 60 * kMillisecond; time < end; time += kMillisecond) {
    EXPECT_EQ(queue.sample(5000, 4600, time), 100U);
  }
  for (const Nanos end = time + 140 * kMillisecond; time < end; time += kMillisecond) {
    (void)queue.sample(5000, 4600, time);
  }
  EXPECT_EQ(queue.sample(5000, 4600, time), 0U);
  EXPECT_EQ(queue.sample(5000, 4599, time), 1U);
}

// ---- CongestionWindow

constexpr size_t kTarget = 24;  // number of packets that may wait in queues of the path
constexpr Nanos kLeast = 50 * kMicrosecond;

// A link whose window is always full. In each trip(), all packets of the window are acknowledged after `rtt`.
class Round {
 public:
  explicit Round(CongestionWindow& window) : window_(window) {}

  void trip(Nanos rtt, size_t lost = 0, bool limited = true) {
    const auto packets = static_cast<uint32_t>(window_.packets());
    const uint32_t sent_to = acked_ + packets;
    window_.lost(lost);
    for (uint32_t i = 0; i < packets; ++i) {
      window_.acknowledged(1, rtt, kLeast, ++acked_, sent_to + i + 1, limited);
    }
  }

 private:
  CongestionWindow& window_;
  uint32_t acked_ = 0;
};

TEST(CongestionWindow, StartsFastAndStopsWhenAQueueBuildsUp) {
  CongestionWindow window(4096, kTarget);
  EXPECT_EQ(window.packets(), 16U);
  Round round(window);
  for (unsigned i = 0; i < 8; ++i) {
    const double before = window.exact();
    round.trip(kLeast);
    EXPECT_GE(window.exact(), 1.4 * before);
    EXPECT_LE(window.exact(), 1.6 * before);
  }
  const double before = window.exact();
  round.trip(2 * kLeast);
  round.trip(2 * kLeast);
  EXPECT_LT(window.exact(), before);
  // From now on the window grows by a part of the packets that fit the queue's target.
  const double slow = window.exact();
  round.trip(kLeast);
  round.trip(kLeast);
  EXPECT_GT(window.exact(), slow);
  EXPECT_LE(window.exact(), slow + kTarget);
}

// Each packet beyond 100 in flight waits on this path. The window settles at about 100 plus the target.
TEST(CongestionWindow, SettlesWhereThePathIsFull) {
  CongestionWindow window(4096, kTarget);
  Round round(window);
  const auto rtt = [&] {
    return std::max(kLeast, static_cast<Nanos>(window.exact() / 100 * static_cast<double>(kLeast)));
  };
  for (unsigned i = 0; i < 100; ++i) round.trip(rtt());
  for (unsigned i = 0; i < 100; ++i) {
    round.trip(rtt());
    EXPECT_GT(window.packets(), 105U);
    EXPECT_LT(window.packets(), 145U);
  }
}

TEST(CongestionWindow, GrowsOnlyWhereItIsTheLimit) {
  CongestionWindow window(4096, kTarget);
  Round round(window);
  for (unsigned i = 0; i < 20; ++i) round.trip(kLeast, 0, false);
  EXPECT_EQ(window.packets(), 16U);
}

TEST(CongestionWindow, RandomLossDoesNoHarm) {
  CongestionWindow window(256, kTarget);
  Round round(window);
  for (unsigned i = 0; i < 50; ++i) round.trip(kLeast, 2);
  EXPECT_EQ(window.packets(), 256U);
  for (unsigned i = 0; i < 50; ++i) round.trip(kLeast, window.packets() / 20);
  EXPECT_EQ(window.packets(), 256U);
  // A fifth is too much to be random loss.
  for (unsigned i = 0; i < 50; ++i) round.trip(kLeast, window.packets() / 5);
  EXPECT_LE(window.packets(), 20U);
  EXPECT_GE(window.packets(), 15U);
}

// Loss of segments counts by segments: half of the packets may lack one.
TEST(CongestionWindow, RandomLossOfSegmentsDoesNoHarm) {
  CongestionWindow window(64, kTarget, 12);
  Round round(window);
  for (unsigned i = 0; i < 50; ++i) round.trip(kLeast, window.packets() / 2);
  EXPECT_EQ(window.packets(), 64U);
  for (unsigned i = 0; i < 50; ++i) round.trip(kLeast, window.packets() * 12 / 5);
  EXPECT_EQ(window.packets(), 2U);
}

TEST(CongestionWindow, SharesTheStartWithOthersForAWhile) {
  CongestionWindow window(256, 16);
  window.share(4);
  EXPECT_EQ(window.packets(), 4U);
  window.share(255);
  EXPECT_EQ(window.packets(), 2U);
  window.share(1);
  EXPECT_EQ(window.packets(), 16U);
  CongestionWindow small(8, 16);
  small.share(2);
  small.share(1);
  EXPECT_EQ(small.packets(), 8U);
}

TEST(CongestionWindow, TheFirstTimeoutIsForgiven) {
  CongestionWindow window(256, kTarget);
  window.timed_out(0);
  EXPECT_EQ(window.packets(), 16U);
  window.timed_out(1);
  EXPECT_EQ(window.packets(), 8U);
  for (unsigned i = 2; i < 10; ++i) window.timed_out(i);
  EXPECT_EQ(window.packets(), 2U);
}

// The window stays within its limits, whatever happens and whatever times a neighbour reports.
TEST(CongestionWindow, StaysWithinItsLimits) {
  Rng rng(3);
  for (const size_t limit : {size_t{2}, size_t{4}, size_t{16}, size_t{128}, size_t{4096}}) {
    for (unsigned round = 0; round < 20; ++round) {
      CongestionWindow window(limit, kTarget);
      uint32_t acked = rng.bits();
      for (unsigned step = 0; step < 500; ++step) {
        const uint64_t wide = uint64_t{rng.bits()} << 32 | rng.bits();
        const Nanos rtt = 1 + (wide >> rng.below(64));
        const Nanos least = rng.one_in(4) ? 1 + (wide >> rng.below(64)) / 3 : std::min(rtt, kLeast);
        if (rng.one_in(10)) window.timed_out(static_cast<unsigned>(rng.below(11)));
        if (rng.one_in(5)) window.lost(rng.below(limit + 1));
        acked += static_cast<uint32_t>(rng.below(limit + 1));
        window.acknowledged(rng.below(limit) + 1, rtt, least, acked, acked + static_cast<uint32_t>(rng.below(limit)),
                            rng.one_in(2));
        ASSERT_GE(window.packets(), 2U);
        ASSERT_LE(window.packets(), limit);
      }
    }
  }
}

}  // namespace
}  // namespace gradlane::test::windows_test
