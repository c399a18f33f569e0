// cli.h - the options of `gradlane accelerator` on the command line
#pragma once

#include <CLI/CLI.hpp>

#include "dataplane/accelerator/commands/setup.h"

namespace gradlane {

// Adds the commands `accelerator up` and `accelerator down` to `app`; their arguments are stored in `options`. Adds
// nothing in a build without accelerator mode.
void add_accelerator(CLI::App& app, AcceleratorSetupOptions& options);

}  // namespace gradlane
