// poll_budget.h - the limit on what one poll of an exchange encodes (packet path)
#pragma once

#include <algorithm>
#include <cstddef>

#include "collectives/wire.h"

namespace gradlane {

// The number of elements that a poll may still encode, and whether the next poll must come at once. Packets of zeros
// have many elements each. Without a limit, encoding a whole window of them would take milliseconds, and packets that
// arrive would wait.
class PollBudget {
 public:
  void begin() noexcept {
    elements_ = kElementsPerPoll;
    more_ = false;
  }
  [[nodiscard]] size_t elements() const noexcept { return elements_; }
  // Returns whether nothing more may be encoded in this poll. If so, the next poll comes at once.
  [[nodiscard]] bool spent() noexcept {
    more_ |= elements_ == 0;
    return elements_ == 0;
  }
  void spend(size_t elements) noexcept { elements_ -= std::min(elements_, elements); }
  // Requests another poll at once, because there is work that needs no new packet.
  void ask_again() noexcept { more_ = true; }
  [[nodiscard]] bool more() const noexcept { return more_; }

 private:
  static constexpr size_t kElementsPerPoll = 4 * kMaxRunElements;

  size_t elements_ = 0;
  bool more_ = false;
};

}  // namespace gradlane
