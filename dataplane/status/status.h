// status.h - what a node looks like from outside, as JSON (control thread only)
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "dataplane/watch/admin.h"

namespace gradlane {

class Node;

// What the process knows of itself.
struct ProcessFacts {
  std::string version;
  AdminSocket::Clock::time_point started;
};

// The document that docs/stats.md describes.
[[nodiscard]] nlohmann::json status_json(const Node& node, const ProcessFacts& process);

// The answer to a line that came by the admin socket: "stats", "probe", "probe MILLISECONDS".
[[nodiscard]] AdminAnswer answer_admin(Node& node, const ProcessFacts& process, const std::string& request);

}  // namespace gradlane
