// clocks.h - conversion of a daemon's clock to the asker's, and the error of that (pure functions)
#pragma once

#include <cstdint>
#include <span>

namespace gradlane {

// The times in one answer, in ns. Daemons count by a clock of their own, whose rate may be off by some 100 ppm.
struct ClockReading {
  int64_t asked = 0;      // the asker's monotonic clock before the request
  int64_t answered = 0;   // the asker's monotonic clock after the answer
  int64_t own = 0;        // the daemon's own clock, as in its records
  int64_t monotonic = 0;  // the kernel's monotonic clock there, read within `spread` of `own`
  int64_t wall = 0;
  int64_t spread = 0;
};

// A line through readings, which converts times of the daemon's clock to the asker's. All processes of a machine have
// the same kernel clock, unless the daemon is in another time namespace. Then `offset` is the middle of the range that
// the round trips allow.
struct ClockFit {
  int64_t own = 0;     // a time of the daemon's own clock
  int64_t common = 0;  // the same moment by the asker's clock
  double rate = 1;     // ns of the asker's clock per ns of the daemon's own clock
  int64_t offset = 0;  // the asker's kernel clock minus the daemon's; 0: they are the same
  double error = 0;    // ns; the greatest error of a converted time

  [[nodiscard]] int64_t at(int64_t time) const noexcept {
    return common + static_cast<int64_t>(static_cast<double>(time - own) * rate);
  }
};

// Fits a line to at least one reading. The readings are in the order of time.
[[nodiscard]] ClockFit fit_clock(std::span<const ClockReading> readings);

}  // namespace gradlane
