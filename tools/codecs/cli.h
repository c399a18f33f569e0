// cli.h - command-line options of `gradlane codecs`
#pragma once

#include <CLI/CLI.hpp>

#include "tools/codecs/codecs.h"

namespace gradlane {

CLI::App* add_codecs(CLI::App& app, CodecsOptions& options);

}  // namespace gradlane
