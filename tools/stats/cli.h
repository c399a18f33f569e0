// cli.h - the options of `gradlane stats` on the command line
#pragma once

#include <CLI/CLI.hpp>

#include "tools/stats/stats.h"

namespace gradlane {

// Adds --socket, --admin, --config and --rank to a subcommand that asks a daemon.
void add_admin_place(CLI::App& app, AdminPlace& place);

// Adds the subcommand; parsing fills in `options`.
CLI::App* add_stats(CLI::App& app, StatsOptions& options);

}  // namespace gradlane
