// remote.h - nodes of a ring that no socket here stands for: where to ask them, and whether who answers is one (pure
// functions)
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gradlane {

struct RemoteNode {
  unsigned node = 0;
  std::string address;  // in the table of nodes
  std::string reach;    // where its metrics are: address or name,
  uint16_t port = 0;    //   and the TCP port
  std::string why;      // it cannot be asked; "": it can
};

// All of the table of nodes in a daemon's document but itself. None: it is too old to say.
[[nodiscard]] std::vector<RemoteNode> remote_nodes(const nlohmann::json& document);

// Why what answers as `node` of the ring of `own`'s daemon is not mixed in; "": it is that node.
[[nodiscard]] std::string stranger_text(const nlohmann::json& document, const nlohmann::json& own, unsigned node);

}  // namespace gradlane
