// cli.h - command-line options of `gradlane loopback`
#pragma once

#include <CLI/CLI.hpp>

#include "tools/loopback/loopback.h"

namespace gradlane {

// Adds the subcommand; parsing fills in `options`.
CLI::App* add_loopback(CLI::App& app, LoopbackOptions& options);

}  // namespace gradlane
