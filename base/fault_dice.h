// fault_dice.h - what becomes of packets on a bad way, decided by seed (pure)
#pragma once

#include <cstdint>

#include "base/random.h"

namespace gradlane {

// Probabilities per packet.
struct FaultChances {
  double drop = 0;
  double duplicate = 0;
  double corrupt = 0;
  double reorder = 0;
  double delay = 0;
};

// A packet takes the same number of random draws whatever is decided, so that packet number n meets the same fate each
// time, and what is dropped does not change with the probability of a delay.
class FaultDice {
 public:
  explicit FaultDice(Random random) noexcept : random_(random) {}

  struct Fate {
    bool drop = false;
    bool duplicate = false;
    bool corrupt = false;
    bool reorder = false;
    bool delay = false;
    uint64_t where = 0;  // random: what to change,
    uint64_t late = 0;   //   by how much it comes late
  };
  [[nodiscard]] Fate decide(const FaultChances& chances) noexcept {
    Fate fate;
    fate.drop = random_.chance(chances.drop);
    fate.duplicate = random_.chance(chances.duplicate);
    fate.corrupt = random_.chance(chances.corrupt);
    fate.where = random_.next();
    fate.reorder = random_.chance(chances.reorder);
    fate.late = random_.next();
    fate.delay = random_.chance(chances.delay);
    return fate;
  }

 private:
  Random random_;
};

}  // namespace gradlane
