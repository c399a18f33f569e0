// cli.h - the options of `gradlane perf` on the command line
#pragma once

#include <CLI/CLI.hpp>

#include "tools/perf/perf.h"

namespace gradlane {

// Adds the subcommand; parsing fills in `options`.
CLI::App* add_perf(CLI::App& app, PerfOptions& options);

}  // namespace gradlane
