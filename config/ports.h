// ports.h - the section `ports` of a configuration file (set-up only)
#pragma once

#include "config/config.h"
#include "config/section.h"

namespace gradlane {

// Reads and checks the ports. `config` has its nodes, rank and MTU. `checked` means that these are right. Otherwise the
// nodes of a port are not checked.
void read_ports(const Section& root, NodeConfig& config, bool checked);

}  // namespace gradlane
