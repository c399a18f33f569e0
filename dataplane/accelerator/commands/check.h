// check.h - `gradlane check` of an accelerator: its machine, and its own reports (main thread only)
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "config/accelerator.h"
#include "tools/check/report.h"

namespace gradlane {

// Checks an accelerator: first the machine, then the running daemon. Calls `print` after the verdicts on the machine,
// because the daemon may need time to answer. Waits up to `time` for the daemon to learn whether its peers answer.
// `document` gets the daemon's answer to "stats" (status.h), if a daemon runs. A build without accelerator
// mode gives only the verdict that it lacks that mode.
void check_accelerator(const AcceleratorConfig& config, std::chrono::milliseconds time, CheckReport& report,
                       const std::function<void()>& print, nlohmann::json& document);

}  // namespace gradlane
