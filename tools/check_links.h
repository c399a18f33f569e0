// check_links.h - the kernel's interfaces that ports use (main thread only)
#pragma once

#include "config/config.h"
#include "tools/check_report.h"

namespace gradlane {

// Present, up, with a cable, an MTU that is large enough, and no settings that are in the way. `own`: the daemon would
// be in this network namespace; else an interface that is missing is only worth a note.
void check_interfaces(const NodeConfig& config, bool own, CheckReport& report);

}  // namespace gradlane
