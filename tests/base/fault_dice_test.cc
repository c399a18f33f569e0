// fault_dice_test.cc - tests of seeded faults of packets: the same seed gives the same faults, with the right frequency
#include "base/fault_dice.h"

#include <gtest/gtest.h>

#include <vector>

namespace gradlane::test::fault_dice_test {
namespace {

constexpr unsigned kPackets = 20000;

std::vector<FaultDice::Fate> fates(uint64_t seed, const FaultChances& chances) {
  FaultDice dice{Random(seed)};
  std::vector<FaultDice::Fate> fates;
  for (unsigned i = 0; i < kPackets; ++i) fates.push_back(dice.decide(chances));
  return fates;
}

unsigned count(const std::vector<FaultDice::Fate>& fates, bool FaultDice::Fate::*what) {
  unsigned count = 0;
  for (const FaultDice::Fate& fate : fates) count += fate.*what ? 1 : 0;
  return count;
}

TEST(FaultDice, FollowsTheChances) {
  const auto all = fates(7, {.drop = 0.1, .duplicate = 0.2, .corrupt = 0.3, .reorder = 0.4, .delay = 0.5});
  EXPECT_NEAR(count(all, &FaultDice::Fate::drop), 2000, 250);
  EXPECT_NEAR(count(all, &FaultDice::Fate::duplicate), 4000, 350);
  EXPECT_NEAR(count(all, &FaultDice::Fate::corrupt), 6000, 400);
  EXPECT_NEAR(count(all, &FaultDice::Fate::reorder), 8000, 450);
  EXPECT_NEAR(count(all, &FaultDice::Fate::delay), 10000, 450);
  const auto none = fates(7, {});
  EXPECT_EQ(count(none, &FaultDice::Fate::drop) + count(none, &FaultDice::Fate::delay), 0U);
}

// The same packets are lost, however likely the other faults are.
TEST(FaultDice, OneFaultDoesNotMoveAnother) {
  const auto some = fates(1, {.drop = 0.1});
  const auto more = fates(1, {.drop = 0.1, .duplicate = 1, .corrupt = 1, .reorder = 1, .delay = 1});
  for (unsigned i = 0; i < kPackets; ++i) ASSERT_EQ(some[i].drop, more[i].drop) << i;
}

}  // namespace
}  // namespace gradlane::test::fault_dice_test
