// idle_test.cc - when an idle worker spins, yields and sleeps
#include "dataplane/poll/idle.h"

#include <gtest/gtest.h>

#include <set>

namespace gradlane::test::idle_test {
namespace {

constexpr Nanos kStart = kSecond;
// upper bound for sleeps, because the lane handles no timeouts during a sleep
constexpr Nanos kLongest = 5 * kMillisecond;

Idle moved_at_start(IdlePolicy policy) {
  Idle idle(policy);
  (void)idle.after(true, true, kStart, kNever);
  return idle;
}

TEST(Idle, NothingAfterSomethingMoved) {
  for (const auto policy : {IdlePolicy::kSpin, IdlePolicy::kYield, IdlePolicy::kAdaptive}) {
    Idle idle(policy);
    for (Nanos now = kStart; now < 10 * kStart; now += kStart) {
      const auto advice = idle.after(true, false, now, kNever);
      EXPECT_FALSE(advice.yield);
      EXPECT_EQ(advice.sleep, 0U);
    }
  }
}

TEST(Idle, SpinNeverYieldsNorSleeps) {
  Idle idle = moved_at_start(IdlePolicy::kSpin);
  for (Nanos idle_for = 1; idle_for < 100 * kSecond; idle_for *= 2) {
    for (const bool in_flight : {false, true}) {
      const auto advice = idle.after(false, in_flight, kStart + idle_for, kNever);
      EXPECT_FALSE(advice.yield);
      EXPECT_EQ(advice.sleep, 0U);
    }
  }
}

TEST(Idle, YieldNeverSleeps) {
  Idle idle = moved_at_start(IdlePolicy::kYield);
  for (Nanos idle_for = 1; idle_for < 100 * kSecond; idle_for *= 2) {
    const auto advice = idle.after(false, false, kStart + idle_for, kNever);
    EXPECT_TRUE(advice.yield);
    EXPECT_EQ(advice.sleep, 0U);
  }
}

// The worker spins and yields for a short time, then it sleeps. Sleeps get longer, up to kLongest.
TEST(Idle, AdaptiveComesToSleep) {
  Idle idle = moved_at_start(IdlePolicy::kAdaptive);
  int stage = 0;  // 0 spins, 1 yields, 2 sleeps
  Nanos last = 0;
  std::set<Nanos> sleeps;
  for (Nanos idle_for = 1; idle_for < 10 * kSecond; idle_for += idle_for / 4 + 1) {
    const auto advice = idle.after(false, false, kStart + idle_for, kNever);
    const int now_stage = advice.sleep != 0 ? 2 : advice.yield ? 1 : 0;
    EXPECT_FALSE(advice.yield && advice.sleep != 0);
    EXPECT_GE(now_stage, stage) << idle_for;
    EXPECT_GE(advice.sleep, last);
    EXPECT_LE(advice.sleep, kLongest);
    stage = now_stage;
    last = advice.sleep;
    if (advice.sleep != 0) sleeps.insert(advice.sleep);
  }
  EXPECT_EQ(stage, 2);
  EXPECT_GE(sleeps.size(), 2U);

  (void)idle.after(true, true, kStart + 10 * kSecond, kNever);
  const auto advice = idle.after(false, false, kStart + 10 * kSecond + 1, kNever);
  EXPECT_FALSE(advice.yield);
  EXPECT_EQ(advice.sleep, 0U) << "begins afresh";
}

// Keep-alives make a poll move something at times. They must not keep the worker awake.
TEST(Idle, WhatMovesWithoutAnOperationKeepsNobodyAwake) {
  Idle idle = moved_at_start(IdlePolicy::kAdaptive);
  const Nanos now = kStart + 10 * kSecond;
  const Nanos sleep = idle.after(false, false, now, kNever).sleep;
  EXPECT_NE(sleep, 0U);
  EXPECT_EQ(idle.after(true, false, now + 1, kNever).sleep, 0U) << "there may be more";
  EXPECT_EQ(idle.after(false, false, now + 2, kNever).sleep, sleep);
}

TEST(Idle, RespectsDeadlines) {
  Idle idle = moved_at_start(IdlePolicy::kAdaptive);
  const Nanos now = kStart + kSecond;
  for (const bool in_flight : {false, true}) {
    for (const Nanos left : {Nanos{0}, Nanos{1}, 30 * kMicrosecond, 150 * kMicrosecond, 10 * kMillisecond}) {
      const auto advice = idle.after(false, in_flight, now, now + left);
      EXPECT_LE(advice.sleep, left);
      EXPECT_EQ(advice.yield, advice.sleep == 0) << "too short to sleep: the core is given up all the same";
    }
    EXPECT_EQ(idle.after(false, in_flight, now, 1).sleep, 0U) << "a deadline that has passed";
    EXPECT_EQ(idle.after(false, in_flight, now, now + 30 * kMicrosecond).sleep, 30 * kMicrosecond);
  }
}

// Packets may come at any time while operations are in flight. The worker yields for longer, and its sleeps are
// shorter.
TEST(Idle, StaysReadyWhileOperationsAreInFlight) {
  Idle idle = moved_at_start(IdlePolicy::kAdaptive);
  const Nanos soon = kStart + kMillisecond;
  EXPECT_TRUE(idle.after(false, true, soon, kNever).yield);
  EXPECT_NE(idle.after(false, false, soon, kNever).sleep, 0U);
  const Nanos late = kStart + 10 * kSecond;
  EXPECT_NE(idle.after(false, true, late, kNever).sleep, 0U);
  EXPECT_LT(idle.after(false, true, late, kNever).sleep, idle.after(false, false, late, kNever).sleep);
}

// Packets on links through the kernel take longer, and the kernel needs the CPU for them.
TEST(Idle, SleepsSoonerWhereLinksAreTheKernels) {
  Idle idle(IdlePolicy::kAdaptive, Idle::kKernelPatience);
  (void)idle.after(true, true, kStart, kNever);
  EXPECT_TRUE(idle.after(false, true, kStart + Idle::kKernelPatience / 2, kNever).yield);
  const auto advice = idle.after(false, true, kStart + 2 * Idle::kKernelPatience, kNever);
  EXPECT_NE(advice.sleep, 0U);
  EXPECT_LE(advice.sleep, 200 * kMicrosecond);
}

// The caller reads `now`. A time before that of the previous call must not look like an idle time of years.
TEST(Idle, TimeThatGoesBackIsNoLongTime) {
  Idle idle = moved_at_start(IdlePolicy::kAdaptive);
  const auto advice = idle.after(false, false, kStart - kMillisecond, kNever);
  EXPECT_EQ(advice.sleep, 0U);
}

}  // namespace
}  // namespace gradlane::test::idle_test
