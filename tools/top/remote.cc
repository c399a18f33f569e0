// remote.cc - nodes of a ring without an admin socket here: where to ask them, and whether the node that answers is the
// right one (pure functions)
#include "tools/top/remote.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/addresses.h"
#include "tools/stats/parts.h"

namespace gradlane {
namespace {

using nlohmann::json;

std::string word(const json& value) { return value.is_string() ? value.get<std::string>() : ""; }

bool is_loopback_word(const std::string& reach) {
  const auto ip = parse_address(reach);
  return ip && is_loopback(*ip);
}

// Returns why a node cannot be asked; "" if it can. `metrics` is this setting of the daemon here. The node is expected
// to have the same one, because usually all nodes share one file. `advice` is a value of the setting that would work.
std::string why_not(const std::string& metrics, const std::string& reach, const std::string& advice) {
  if (metrics.empty()) return fmt::format("set `metrics: {}` on all nodes", advice);
  if (reach.empty()) return "the table of nodes has no `host` for it, to which TCP could connect";
  const auto listens = parse_ip_port(metrics);
  if (!listens) return fmt::format("`metrics: {}` is not an address", metrics);
  if (!is_loopback(listens->ip) || is_loopback_word(reach)) return "";
  return fmt::format("`metrics: {}` answers only on its own machine: set `metrics: {}`", metrics, advice);
}

}  // namespace

std::vector<RemoteNode> remote_nodes(const json& document) {
  std::vector<RemoteNode> nodes;
  const json& table = at(document, "table");
  const std::string metrics = word(at(document, "metrics"));
  const bool sockets = std::ranges::all_of(table, [](const json& it) { return at(it, "reach") == at(it, "address"); });
  const auto listens = parse_ip_port(metrics);
  const std::string advice = fmt::format("{}:{}", sockets ? "node" : "0.0.0.0", listens ? listens->port : 9400);
  for (const json& it : table) {
    if (at(it, "node") == at(document, "node")) continue;
    RemoteNode& node = nodes.emplace_back();
    node.node = whole(at(it, "node"));
    node.address = word(at(it, "address"));
    node.reach = word(at(it, "reach"));
    node.port = listens ? listens->port : uint16_t{0};
    node.why = why_not(metrics, node.reach, advice);
  }
  return nodes;
}

std::string stranger_text(const json& document, const json& own, unsigned node) {
  if (at(document, "config_digest") != at(own, "config_digest") || at(document, "nodes") != at(own, "nodes")) {
    return "the daemon there is of another ring or has other settings: its config_digest differs";
  }
  const json& number = at(document, "node");
  if (number == node) return "";
  if (!number.is_number_integer() || number < 0) return "the program there is not a node";
  return fmt::format("node {} answers there", whole(number));
}

}  // namespace gradlane
