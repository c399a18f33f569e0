// status.h - a node's figures as JSON and as lines of the log (pure functions)
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "dataplane/status/node_figures.h"
#include "dataplane/status/process_figures.h"

namespace gradlane {

// Returns the document of `gradlane stats --json`: figures by their names, null if not known.
[[nodiscard]] nlohmann::json status_json(const NodeFigures& node, const ProcessFigures& process);

// Returns a line for each queue and each rank, with the counters that are not 0.
[[nodiscard]] std::vector<std::string> counter_lines(const NodeFigures& node);

}  // namespace gradlane
