// cli.h - the options of `gradlane accelerator` on the command line
#pragma once

#include <CLI/CLI.hpp>

#include "tools/accelerator/setup.h"

namespace gradlane {

struct AcceleratorCommands {
  const CLI::App* up;
  const CLI::App* down;
};
AcceleratorCommands add_accelerator(CLI::App& app, AcceleratorSetupOptions& options);

}  // namespace gradlane
