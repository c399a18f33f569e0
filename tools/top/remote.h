// remote.h - nodes of a ring without an admin socket here: where to ask them, and whether the node that answers is the
// right one (pure functions)
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gradlane {

struct RemoteNode {
  unsigned node = 0;
  std::string address;  // its address in the table of nodes
  std::string reach;    // address or name of its metrics server
  uint16_t port = 0;    // TCP port of that server
  std::string why;      // reason why it cannot be asked; "" if it can
};

// Returns all nodes in the document's table of nodes but the daemon's own. Returns none if the daemon is too old to
// send the table.
[[nodiscard]] std::vector<RemoteNode> remote_nodes(const nlohmann::json& document);

// Returns why `document` is not from node `node` of the same ring as `own`, the document of a daemon here; "" if it is.
[[nodiscard]] std::string stranger_text(const nlohmann::json& document, const nlohmann::json& own, unsigned node);

}  // namespace gradlane
