// settings.h - options of `gradlane loopback`, parsed and checked
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/loopback/loopback.h"
#include "tools/loopback/loopback.h"

namespace gradlane {

struct LoopbackSettings {
  LoopbackConfig config;    // its data is `data` below
  std::vector<float> data;  // values for packets and tensors
  double seconds = 0;       // 0: until a signal comes
  unsigned core = 0;
};

[[nodiscard]] const char* loopback_mode_name(LoopbackMode mode) noexcept;

// Parses and checks the options. Throws SetupError.
[[nodiscard]] LoopbackSettings plan_loopback(const LoopbackOptions& options);

}  // namespace gradlane
