// failed_operations.h - failed operations in the log: which, why, how many (control thread only; no I/O, no clock)
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

// Of one rank on one lane, so far.
struct FailedOperations {
  unsigned rank = 0;
  uint64_t count = 0;
  Failure last;              // why the last of them failed,
  PastFailures before = {};  // and those before it
};

// Each cause has a line when it is new, and then one every 10 s that says how many more there were. An operation fails
// on all lanes of its rank: it is counted once.
class FailureLog {
 public:
  static constexpr Nanos kAgain = 10 * kSecond;

  // `all`: always the same ranks and lanes in the same order.
  [[nodiscard]] std::vector<RingLine> look(unsigned node, std::span<const FailedOperations> all, Nanos now);

  // When the last failure of any rank was seen; 0: there was none.
  [[nodiscard]] Nanos failed_at() const noexcept { return failed_at_; }

 private:
  struct Cause {
    Failure failure;
    uint64_t unlogged = 0;
    Nanos logged_at = 0;  // 0: never
  };
  void count(const FailedOperations& all, uint64_t seen);
  void count(const Failure& failure, uint64_t operations);

  std::vector<uint64_t> seen_;  // as `all`
  std::vector<Cause> causes_;   // of the last kAgain
  Nanos failed_at_ = 0;
};

}  // namespace gradlane
