// plan_table.h - what was chosen for operations, as a table and as a plan to keep (no I/O)
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/stats/parts.h"

namespace gradlane {

// Of all ranks of this node; of an accelerator it is.
[[nodiscard]] bool all_rings_whole(const nlohmann::json& document);

// Of the document's `plan`: a line for each class, and what is to be said of it.
[[nodiscard]] Lines plan_lines(const nlohmann::json& document);

// The file that a configuration's `plan` names, of what was settled for sums of float32. Throws SetupError: nothing
// was.
[[nodiscard]] std::string frozen_plan(const nlohmann::json& document);

}  // namespace gradlane
