// poll_budget.h - how much one poll of an exchange encodes (packet path)
#pragma once

#include <algorithm>
#include <cstddef>

#include "collectives/wire.h"

namespace gradlane {

// Packets of zeros have many elements each, and what arrives meanwhile waits: a whole window of them would take
// milliseconds.
class PollBudget {
 public:
  void begin() noexcept {
    elements_ = kElementsPerPoll;
    more_ = false;
  }
  [[nodiscard]] size_t elements() const noexcept { return elements_; }
  // Nothing may be encoded any more; the next poll goes on.
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
