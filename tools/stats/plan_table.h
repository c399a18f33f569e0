// plan_table.h - choices of codec and strategy for operations, as a table and as a plan file (no I/O)
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/stats/parts.h"

namespace gradlane {

// Returns whether the ring is ready for all ranks of this node. It is true for an accelerator, which has no ranks.
[[nodiscard]] bool all_rings_whole(const nlohmann::json& document);

// Formats the document's `plan`: a row for each class of operations, the reason for its choice below it, and a legend.
[[nodiscard]] Lines plan_lines(const nlohmann::json& document);

// Returns the text of a file for the configuration's `plan`, from the choices that are settled for all-reduces of
// float32. Throws SetupError if none is settled.
[[nodiscard]] std::string frozen_plan(const nlohmann::json& document);

}  // namespace gradlane
