// status.h - what a node looks like from outside, as JSON and as facts about its ring (control thread only)
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "dataplane/admin.h"
#include "dataplane/ring_news.h"

namespace gradlane {

class Node;
class Port;

// What the process knows of itself.
struct ProcessFacts {
  std::string version;
  AdminSocket::Clock::time_point started;
};

// What RingWatch looks at. Figures of workers are up to 100 ms old.
[[nodiscard]] RingFacts ring_facts(const Node& node, Nanos now);

// The document that docs/stats.md describes.
[[nodiscard]] nlohmann::json status_json(const Node& node, const ProcessFacts& process);

// The answer to a line that came by the admin socket: "stats", "probe", "probe MILLISECONDS".
[[nodiscard]] AdminAnswer answer_admin(Node& node, const ProcessFacts& process, const std::string& request);

}  // namespace gradlane
