// poll_budget.h - how much one poll of an exchange encodes (packet path)
#pragma once

#include <algorithm>
#include <cstddef>

#include "collectives/wire.h"

namespace gradlane {

// How many elements a poll may still encode, and whether the next poll is to come at once. Without a bound a whole
// window of packets of zeros, which have many elements each, would take milliseconds, and what arrives would wait.
class PollBudget {
 public:
  void begin() noexcept {
    elements_ = kElementsPerPoll;
    more_ = false;
  }
  [[nodiscard]] size_t elements() const noexcept { return elements_; }
  // Nothing may be encoded any more. Then the next poll comes at once.
  [[nodiscard]] bool spent() noexcept {
    more_ |= elements_ == 0;
    return elements_ == 0;
  }
  void spend(size_t elements) noexcept { elements_ -= std::min(elements_, elements); }
  // There is something to do at once that needs no new packet.
  void ask_again() noexcept { more_ = true; }
  [[nodiscard]] bool more() const noexcept { return more_; }

 private:
  static constexpr size_t kElementsPerPoll = 4 * kMaxRunElements;

  size_t elements_ = 0;
  bool more_ = false;
};

}  // namespace gradlane
