// clocks.h - a daemon's clock on that of who asked it, and how far that can be trusted (pure functions)
#pragma once

#include <cstdint>
#include <span>

namespace gradlane {

// What one answer said, in ns. Daemons count by a clock of their own, whose rate may be some 100 ppm off.
struct ClockReading {
  int64_t asked = 0;      // the asker's monotonic clock before,
  int64_t answered = 0;   //   and after
  int64_t own = 0;        // the daemon's own clock, as in its records,
  int64_t monotonic = 0;  //   and the kernel's there, read within `spread`
  int64_t wall = 0;
  int64_t spread = 0;
};

// A line through readings. On one machine the kernel's clock is the same for all; where it is not (a time namespace),
// its offset is the middle of what the round trips allow.
struct ClockFit {
  int64_t own = 0;     // at this time of its own clock
  int64_t common = 0;  //   it is that time of the asker's,
  double rate = 1;     //   and so many ns pass there in one of its own
  int64_t offset = 0;  // of the kernels' clocks: the asker's less the daemon's; 0: they are one
  double error = 0;    // ns: a converted time is off by no more than that

  [[nodiscard]] int64_t at(int64_t time) const noexcept {
    return common + static_cast<int64_t>(static_cast<double>(time - own) * rate);
  }
};

// At least one reading, in the order of time.
[[nodiscard]] ClockFit fit_clock(std::span<const ClockReading> readings);

}  // namespace gradlane
