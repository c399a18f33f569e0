// fault_injector.cc - faults injected on purpose into the frames that one queue receives (worker thread only; no DPDK)
#include "dataplane/lane/fault_injector.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/values.h"

namespace gradlane {

FaultInjector::FaultInjector(const InjectedFaults& faults, uint64_t stream) noexcept
    // Seeds must not differ by small numbers only. Otherwise one stream would equal another, some steps later.
    : faults_(faults),
      dice_(Random(Random::mix(faults.seed + Random::kStep) ^ Random::mix(stream * Random::kStep + 1))) {}

FaultInjector::Fate FaultInjector::decide(size_t bytes) noexcept {
  ++arrivals_;
  const FaultDice::Fate fate = dice_.decide({.drop = faults_.drop,
                                             .duplicate = faults_.duplicate,
                                             .corrupt = faults_.corrupt,
                                             .reorder = faults_.reorder,
                                             .delay = faults_.delay});
  return {.drop = fate.drop,
          .duplicate = fate.duplicate,
          .corrupt = fate.corrupt && bytes != 0,
          .bit = fate.where % std::max(bytes * 8, size_t{1}),
          .behind = fate.reorder ? static_cast<unsigned>(fate.late % kBehind + 1) : 0,
          .delay = fate.delay};
}

bool FaultInjector::hold(void* frame, const Fate& fate, Nanos now) noexcept {
  if ((fate.behind == 0 && !fate.delay) || count_ == kHeld) return false;
  Held& held = held_[count_++];
  held.frame = frame;
  held.due = now + (fate.delay ? faults_.delay_time : kPatience);
  held.behind = fate.delay ? ~uint64_t{0} : arrivals_ + fate.behind;
  deadline_ = std::min(deadline_, held.due);
  next_behind_ = std::min(next_behind_, held.behind);
  return true;
}

void* FaultInjector::take(Nanos now) noexcept {
  if (now < deadline_ && arrivals_ < next_behind_) return nullptr;
  for (size_t i = 0; i < count_; ++i) {
    if (now >= held_[i].due || arrivals_ >= held_[i].behind) return remove(i);
  }
  return nullptr;
}

void* FaultInjector::take_any() noexcept { return count_ == 0 ? nullptr : remove(0); }

void* FaultInjector::remove(size_t place) noexcept {
  void* const frame = held_[place].frame;
  std::move(held_.begin() + static_cast<ptrdiff_t>(place) + 1, held_.begin() + static_cast<ptrdiff_t>(count_),
            held_.begin() + static_cast<ptrdiff_t>(place));
  --count_;
  look_at_held();
  return frame;
}

void FaultInjector::look_at_held() noexcept {
  deadline_ = kNever;
  next_behind_ = ~uint64_t{0};
  for (size_t i = 0; i < count_; ++i) {
    deadline_ = std::min(deadline_, held_[i].due);
    next_behind_ = std::min(next_behind_, held_[i].behind);
  }
}

std::string faults_summary(const InjectedFaults& faults) {
  const struct {
    const char* name;
    double probability;
  } kinds[] = {{"drop", faults.drop},
               {"duplicate", faults.duplicate},
               {"reorder", faults.reorder},
               {"corrupt", faults.corrupt},
               {"delay", faults.delay}};
  std::string text;
  for (const auto& kind : kinds) {
    if (kind.probability > 0) text += fmt::format("{} {:.4g} %, ", kind.name, kind.probability * 100);
  }
  if (faults.delay > 0) text += fmt::format("delay time {}, ", duration_text(faults.delay_time));
  return text + fmt::format("seed {}", faults.seed);
}

}  // namespace gradlane
