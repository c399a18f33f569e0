// time.h - times and durations in nanoseconds. A polling loop reads the clock once per round and passes the time to the
// functions that it calls
#pragma once

#include <cstdint>

namespace gradlane {

using Nanos = uint64_t;  // duration, or time since any fixed point
inline constexpr Nanos kNever = ~Nanos{0};
inline constexpr Nanos kMicrosecond = 1000;
inline constexpr Nanos kMillisecond = 1000 * kMicrosecond;
inline constexpr Nanos kSecond = 1000 * kMillisecond;

}  // namespace gradlane
