// check.h - `gradlane check` of an accelerator: its machine, and what it says of itself (main thread only)
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "config/accelerator.h"
#include "tools/check/report.h"

namespace gradlane {

// time: how long the accelerator may ask its peers. print: called when verdicts have come and others take time.
// document: gets the daemon's answer to "stats" (docs/stats.md), if one runs. In a build without accelerator
// mode the verdict says so.
void check_accelerator(const AcceleratorConfig& config, std::chrono::milliseconds time, CheckReport& report,
                       const std::function<void()>& print, nlohmann::json& document);

}  // namespace gradlane
