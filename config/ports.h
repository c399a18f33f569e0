// ports.h - the section `ports` of a configuration file (set-up only)
#pragma once

#include "config/config.h"
#include "config/section.h"

namespace gradlane {

// Reads and checks the ports. `config` has its nodes, rank and MTU; they are right if `checked`, and else what leads to
// nodes is not checked.
void read_ports(const Section& root, NodeConfig& config, bool checked);

}  // namespace gradlane
