// accelerator.h - verdicts about an accelerator: its machine, and what it says of itself (main thread only)
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "config/accelerator.h"
#include "tools/check/report.h"

namespace gradlane {

// CPUs, rights, interfaces and their offloads. `runs`: there is a daemon, perhaps in another network namespace.
void check_accelerator_machine(const AcceleratorConfig& config, bool runs, CheckReport& report);

// None runs: what this means for the host's network, and what to do.
void check_accelerator_is_missing(const AcceleratorConfig& config, CheckReport& report);

// `document`: the daemon's answer to "stats" (docs/stats.md).
void check_accelerator_answer(const AcceleratorConfig& config, const nlohmann::json& document, CheckReport& report);

// Of some address it is not known yet whether an accelerator is there.
[[nodiscard]] bool asks_peers(const nlohmann::json& document);

}  // namespace gradlane
