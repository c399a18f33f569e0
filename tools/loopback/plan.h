// plan.h - the options of `gradlane loopback`, understood and checked
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/loopback/loopback.h"
#include "tools/loopback/loopback.h"

namespace gradlane {

struct LoopbackPlan {
  LoopbackConfig config;    // its data is `data` below
  std::vector<float> data;  // what packets and tensors are filled with
  double seconds = 0;       // 0: until somebody interrupts it
  unsigned core = 0;
};

[[nodiscard]] const char* loopback_mode_name(LoopbackMode mode) noexcept;

// Throws SetupError.
[[nodiscard]] LoopbackPlan plan_loopback(const LoopbackOptions& options);

}  // namespace gradlane
