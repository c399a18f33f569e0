// cli.h - command-line options of `gradlane nic`
#pragma once

#include <CLI/CLI.hpp>

#include "tools/nic/setup.h"

namespace gradlane {

void add_nic(CLI::App& app, NicOptions& options);

}  // namespace gradlane
