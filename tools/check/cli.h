// cli.h - command-line options of `gradlane check`
#pragma once

#include <CLI/CLI.hpp>

#include "tools/check/check.h"

namespace gradlane {

CLI::App* add_check(CLI::App& app, CheckOptions& options);

}  // namespace gradlane
