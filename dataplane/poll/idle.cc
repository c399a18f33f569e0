// idle.cc - the stages of idleness: spin, yield, sleep (worker thread only)
#include "dataplane/poll/idle.h"

#include <algorithm>

namespace gradlane {
namespace {

constexpr Nanos kSpin = 3 * kMicrosecond;
constexpr Nanos kYield = 100 * kMicrosecond;

// The length of a sleep, by how long nothing has moved.
struct Stage {
  Nanos idle;
  Nanos sleep;
};
constexpr Stage kStages[] = {
    {kSecond, 3 * kMillisecond},
    {100 * kMillisecond, kMillisecond},
    {5 * kMillisecond, 200 * kMicrosecond},
    {0, 50 * kMicrosecond},
};
constexpr Nanos kSleepInFlight = 200 * kMicrosecond;  // longest sleep while operations are in flight
// The sleep of a worker that packets wake up. Its other tasks can wait that long.
constexpr Nanos kWokenSleep = 50 * kMillisecond;
constexpr Nanos kLeastSleep = 20 * kMicrosecond;

}  // namespace

Idle::Advice Idle::after(bool moved, bool in_flight, Nanos now, Nanos deadline) noexcept {
  // Keep-alives come several times a second. They must not keep the worker awake.
  if (moved && in_flight) moved_at_ = now;
  if (policy_ == IdlePolicy::kSpin || moved) return {};
  const Nanos idle = now - std::min(moved_at_, now);
  if (policy_ == IdlePolicy::kYield) return {.yield = true, .sleep = 0};
  if (idle < kSpin) return {};
  if (idle < (in_flight ? patience_ : kYield)) return {.yield = true, .sleep = 0};

  Nanos sleep = 0;
  for (const Stage& stage : kStages) {
    if (idle >= stage.idle) {
      sleep = stage.sleep;
      break;
    }
  }
  if (in_flight) sleep = std::min(sleep, kSleepInFlight);
  if (woken_) sleep = kWokenSleep;
  if (deadline != kNever) sleep = std::min(sleep, deadline > now ? deadline - now : Nanos{0});
  if (sleep < kLeastSleep) return {.yield = true, .sleep = 0};
  return {.yield = false, .sleep = sleep};
}

}  // namespace gradlane
