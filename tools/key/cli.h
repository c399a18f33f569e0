// cli.h - the options of `gradlane key` on the command line
#pragma once

#include <CLI/CLI.hpp>

#include "tools/key/key.h"

namespace gradlane {

// Adds the subcommand; parsing fills in `options`.
void add_key(CLI::App& app, KeyOptions& options);

}  // namespace gradlane
