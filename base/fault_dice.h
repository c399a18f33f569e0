// fault_dice.h - seeded random decisions on the faults of packets: loss, duplicates, corruption, reordering, delay
// (pure)
#pragma once

#include <cstdint>

#include "base/random.h"

namespace gradlane {

// Probabilities of faults, per packet.
struct FaultChances {
  double drop = 0;
  double duplicate = 0;
  double corrupt = 0;
  double reorder = 0;
  double delay = 0;
};

// Decides which faults a packet gets. Every packet takes the same number of random draws. So packet number n gets the
// same faults in each run, and the probability of a delay does not change which packets are dropped.
class FaultDice {
 public:
  explicit FaultDice(Random random) noexcept : random_(random) {}

  struct Fate {
    bool drop = false;
    bool duplicate = false;
    bool corrupt = false;
    bool reorder = false;
    bool delay = false;
    uint64_t where = 0;  // random number that selects the bits to change
    uint64_t late = 0;   // random number that selects how late the packet arrives
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
