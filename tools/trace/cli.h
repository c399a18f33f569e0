// cli.h - the options of `gradlane trace` on the command line
#pragma once

#include <CLI/CLI.hpp>

#include "tools/trace/trace.h"

namespace gradlane {

// Adds the subcommand; parsing fills in `options`.
CLI::App* add_trace(CLI::App& app, TraceOptions& options);

}  // namespace gradlane
