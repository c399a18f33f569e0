// check_machine.h - verdicts about the machine that an accelerator runs on (main thread only)
#pragma once

#include "config/accelerator.h"
#include "tools/check/report.h"

namespace gradlane {

// Checks CPUs, rights, interfaces and their offloads. `runs`: whether a daemon runs, perhaps in another network
// namespace. If one runs, the checks that only a start needs (user, hugepages, permissions) are left out.
void check_accelerator_machine(const AcceleratorConfig& config, bool runs, CheckReport& report);

// Returns whether an interface of the accelerator is in this network namespace.
[[nodiscard]] bool sees_interfaces(const AcceleratorConfig& config);

// Reports that no daemon runs, what this means for the host's network, and what to do.
void check_accelerator_is_missing(const AcceleratorConfig& config, CheckReport& report);

}  // namespace gradlane
