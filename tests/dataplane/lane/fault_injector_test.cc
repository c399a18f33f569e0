// fault_injector_test.cc - faults on purpose: their rates, repetition by seed, held frames in time and in number
#include "dataplane/lane/fault_injector.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

namespace gradlane::test::fault_injector_test {
namespace {

using Fate = FaultInjector::Fate;

auto fields(const Fate& fate) {
  return std::tuple(fate.drop, fate.duplicate, fate.corrupt, fate.bit, fate.behind, fate.delay);
}

std::vector<Fate> fates(const InjectedFaults& faults, uint64_t stream, size_t count) {
  FaultInjector injector(faults, stream);
  std::vector<Fate> result;
  for (size_t i = 0; i < count; ++i) result.push_back(injector.decide(60 + i % 1455));
  return result;
}

constexpr InjectedFaults kSome{.drop = 0.01, .duplicate = 0.02, .reorder = 0.03, .corrupt = 0.04, .delay = 0.05};

TEST(FaultInjector, SameSeedSameFaults) {
  const auto first = fates(kSome, 1, 5000);
  const auto again = fates(kSome, 1, 5000);
  const auto other_stream = fates(kSome, 2, 5000);
  InjectedFaults seed = kSome;
  seed.seed = 2;
  const auto other_seed = fates(seed, 1, 5000);
  size_t stream_drops = 0;
  size_t seed_drops = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    ASSERT_EQ(fields(first[i]), fields(again[i])) << i;
    stream_drops += first[i].drop && other_stream[i].drop ? 1 : 0;
    seed_drops += first[i].drop && other_seed[i].drop ? 1 : 0;
  }
  // Each sequence drops about 50 frames of 5000. If these are independent, the sequences share less than one on
  // average.
  EXPECT_LT(stream_drops, 10u);
  EXPECT_LT(seed_drops, 10u);
}

TEST(FaultInjector, ProbabilitiesAreWhatTheySay) {
  constexpr size_t kCount = 200'000;
  std::array<size_t, 5> counts{};
  std::set<unsigned> behind;
  for (const Fate& fate : fates(kSome, 3, kCount)) {
    counts[0] += fate.drop ? 1 : 0;
    counts[1] += fate.duplicate ? 1 : 0;
    counts[2] += fate.behind != 0 ? 1 : 0;
    counts[3] += fate.corrupt ? 1 : 0;
    counts[4] += fate.delay ? 1 : 0;
    if (fate.behind != 0) behind.insert(fate.behind);
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(counts[i]), kCount * 0.01 * static_cast<double>(i + 1), 600) << i;
  }
  EXPECT_EQ(behind, (std::set<unsigned>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(FaultInjector, AlwaysAndNever) {
  for (const Fate& fate : fates({.drop = 1, .corrupt = 1}, 0, 2000)) {
    EXPECT_TRUE(fate.drop && fate.corrupt);
    EXPECT_FALSE(fate.duplicate || fate.delay || fate.behind != 0);
  }
}

// Each fault picks its frames without regard to the other faults.
TEST(FaultInjector, FaultsAreIndependent) {
  const auto all = fates(kSome, 5, 5000);
  const auto drops = fates({.drop = 0.01}, 5, 5000);
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i].drop, drops[i].drop) << i;
}

TEST(FaultInjector, AnyBitOfAFrame) {
  FaultInjector injector({.corrupt = 1}, 0);
  std::set<size_t> bits;
  for (size_t i = 0; i < 20'000; ++i) {
    const Fate fate = injector.decide(60);
    ASSERT_LT(fate.bit, 60u * 8);
    bits.insert(fate.bit);
  }
  EXPECT_EQ(bits.size(), 60u * 8);
  EXPECT_FALSE(injector.decide(0).corrupt);
}

// ---- Holding

struct Frames {
  std::array<int, 1000> frames{};
  void* operator[](size_t i) { return &frames[i]; }
};

TEST(FaultInjector, ReorderedComeBehindLaterFrames) {
  FaultInjector injector({.reorder = 1e-9}, 0);
  Frames frames;
  EXPECT_EQ(injector.deadline(), kNever);
  (void)injector.decide(60);
  ASSERT_TRUE(injector.hold(frames[0], {.behind = 2}, 100));
  EXPECT_EQ(injector.deadline(), 100 + FaultInjector::kPatience);
  EXPECT_EQ(injector.take(100), nullptr);
  (void)injector.decide(60);
  EXPECT_EQ(injector.take(100), nullptr);
  (void)injector.decide(60);
  EXPECT_EQ(injector.take(100), frames[0]);
  EXPECT_EQ(injector.take(100), nullptr);
  EXPECT_EQ(injector.deadline(), kNever);
}

TEST(FaultInjector, ReorderedComeWithoutLaterFramesToo) {
  FaultInjector injector({.reorder = 1}, 0);
  Frames frames;
  ASSERT_TRUE(injector.hold(frames[0], injector.decide(60), 100));
  EXPECT_EQ(injector.take(99 + FaultInjector::kPatience), nullptr);
  EXPECT_EQ(injector.take(100 + FaultInjector::kPatience), frames[0]);
}

TEST(FaultInjector, DelayedComeInTime) {
  FaultInjector injector({.delay = 1, .delay_time = 5000}, 0);
  Frames frames;
  ASSERT_TRUE(injector.hold(frames[0], injector.decide(60), 100));
  ASSERT_TRUE(injector.hold(frames[1], injector.decide(60), 200));
  for (int i = 0; i < 100; ++i) (void)injector.decide(60);
  EXPECT_EQ(injector.deadline(), 5100u);
  EXPECT_EQ(injector.take(5099), nullptr);
  EXPECT_EQ(injector.take(5100), frames[0]);
  EXPECT_EQ(injector.take(5100), nullptr);
  EXPECT_EQ(injector.deadline(), 5200u);
  // A frame that is both delayed and reordered is only delayed.
  ASSERT_TRUE(injector.hold(frames[2], {.behind = 1, .delay = true}, 200));
  (void)injector.decide(60);
  EXPECT_EQ(injector.take(5199), nullptr);
  EXPECT_EQ(injector.take(9999), frames[1]);
  EXPECT_EQ(injector.take(9999), frames[2]);
}

TEST(FaultInjector, WhatIsNotToBeHeldIsNot) {
  FaultInjector injector(kSome, 0);
  Frames frames;
  EXPECT_FALSE(injector.hold(frames[0], {.duplicate = true, .corrupt = true}, 100));
  EXPECT_EQ(injector.take_any(), nullptr);
}

TEST(FaultInjector, FullOneLetsFramesPass) {
  FaultInjector injector({.delay = 1, .delay_time = kSecond}, 0);
  Frames frames;
  for (size_t i = 0; i < FaultInjector::kHeld; ++i) {
    ASSERT_TRUE(injector.hold(frames[i], injector.decide(60), i)) << i;
  }
  EXPECT_FALSE(injector.hold(frames[999], injector.decide(60), 999));
  EXPECT_EQ(injector.take(kSecond), frames[0]);
  EXPECT_TRUE(injector.hold(frames[999], injector.decide(60), 1000));
  // At the end, each held frame comes back once.
  std::set<void*> given;
  while (void* const frame = injector.take_any()) EXPECT_TRUE(given.insert(frame).second);
  EXPECT_EQ(given.size(), FaultInjector::kHeld);
  EXPECT_EQ(injector.deadline(), kNever);
}

TEST(FaultInjector, Summary) {
  EXPECT_EQ(faults_summary({.drop = 0.01, .delay = 0.005, .delay_time = 2 * kMillisecond, .seed = 7}),
            "drop 1 %, delay 0.5 %, delay time 2ms, seed 7");
}

}  // namespace
}  // namespace gradlane::test::fault_injector_test
