// cli.h - the options of `gradlane check` on the command line
#pragma once

#include <CLI/CLI.hpp>

#include "tools/check/check.h"

namespace gradlane {

CLI::App* add_check(CLI::App& app, CheckOptions& options);

}  // namespace gradlane
