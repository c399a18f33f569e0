// check.h - `gradlane check` of an accelerator: its machine, and its own reports (main thread only)
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "config/accelerator.h"
#include "tools/check/report.h"

namespace gradlane {

// Checks an accelerator. `time` limits how long it may ask its peers. `print` is called when some verdicts are there
// and others take time. `document` gets the daemon's answer to "stats" (docs/stats.md), if a daemon runs. A build
// without accelerator mode gives only the verdict that it lacks that mode.
void check_accelerator(const AcceleratorConfig& config, std::chrono::milliseconds time, CheckReport& report,
                       const std::function<void()>& print, nlohmann::json& document);

}  // namespace gradlane
