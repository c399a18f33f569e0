// cli.h - the options of `gradlane top` on the command line
#pragma once

#include <CLI/CLI.hpp>

#include "tools/top/top.h"

namespace gradlane {

// Adds the subcommand; parsing fills in `options`.
CLI::App* add_top(CLI::App& app, TopOptions& options);

}  // namespace gradlane
