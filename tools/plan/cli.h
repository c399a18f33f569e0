// cli.h - the options of `gradlane plan` on the command line
#pragma once

#include <CLI/CLI.hpp>

#include "tools/plan/plan.h"

namespace gradlane {

CLI::App* add_plan(CLI::App& app, PlanOptions& options);

}  // namespace gradlane
