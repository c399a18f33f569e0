// status.h - an accelerator's figures as JSON (pure functions)
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "dataplane/accelerator/figures.h"

namespace gradlane {

// Returns the document of `gradlane stats --json` for an accelerator.
[[nodiscard]] nlohmann::json accelerator_json(const AcceleratorFigures& figures);

}  // namespace gradlane
