// failed_operations.h - log lines about failed operations: cause and number (control thread only; no I/O, no clock)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "collectives/exchange/exchange.h"
#include "collectives/operation.h"
#include "dataplane/watch/ring_watch.h"

namespace gradlane {

// The failed operations of one rank on one lane, so far.
struct FailedOperations {
  unsigned rank = 0;
  uint64_t count = 0;
  Failure last;              // cause of the last failure
  PastFailures before = {};  // causes of earlier failures
};

// Logs failures by cause. A cause gets a line when it is new, and then one every 10 s with the number of further
// failures. An operation that fails on all lanes of its rank is counted once.
class FailureLog {
 public:
  static constexpr Nanos kAgain = 10 * kSecond;

  // Returns the lines to log. `all` must always have the same ranks and lanes in the same order.
  [[nodiscard]] std::vector<RingLine> look(unsigned node, std::span<const FailedOperations> all, Nanos now);

  // Returns when the last failure of any rank was seen; 0: there was none.
  [[nodiscard]] Nanos failed_at() const noexcept { return failed_at_; }

 private:
  struct Cause {
    Failure failure;
    uint64_t unlogged = 0;
    Nanos logged_at = 0;  // time of its last line; 0: none
  };
  void count(const FailedOperations& all, uint64_t seen);
  void count(const Failure& failure, uint64_t operations);

  std::vector<uint64_t> seen_;  // counts at the latest look(), in the order of `all`
  std::vector<Cause> causes_;   // causes with failures or log lines in the last kAgain
  Nanos failed_at_ = 0;
};

}  // namespace gradlane
