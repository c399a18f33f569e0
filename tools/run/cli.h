// cli.h - the options of `gradlane run` on the command line
#pragma once

#include <CLI/CLI.hpp>

#include "tools/run/run.h"

namespace gradlane {

// Removes the command after "--" from the arguments of `gradlane run`, before CLI11 sees them, and stores it in
// `options`. CLI11 would interpret arguments like "[1,2]". Other subcommands are not changed. `options` must outlive
// the parse.
void cut_run_command(int& argc, const char* const* argv, RunOptions& options);

CLI::App* add_run(CLI::App& app, RunOptions& options);

}  // namespace gradlane
