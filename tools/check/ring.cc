// ring.cc - verdicts about links, neighbours and the ring, from the answers of a daemon (main thread only)
#include "tools/check/ring.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/parse.h"
#include "config/addresses.h"
#include "config/values.h"
#include "config/words.h"
#include "tools/admin/json_fields.h"
#include "tools/check/reach.h"
#include "tools/check/sockets.h"

namespace gradlane {
namespace {

using nlohmann::json;

constexpr unsigned kDscp = 0xfc;  // mask of DSCP; the other bits are ECN, which routers may change

// One neighbour: the results of its probes, and its name and address in messages.
struct NeighbourReport {
  const json& probe;
  json news;  // its entry in "neighbours" of the document
  std::string name;
  std::string ip;
  std::string port;
  std::optional<Reach> reach;  // set for a neighbour that uses sockets and does not answer
};

NeighbourReport subject_of(const json& probe, const json& document) {
  NeighbourReport it{probe, json::object(), "", text_at(probe, "ip"), "", {}};
  for (const json& each : list_at(document, "neighbours")) {
    if (number_at(each, "node") == number_at(probe, "node")) it.news = each;
  }
  it.port = text_at(it.news, "port");
  it.name = fmt::format("node {} ({}, port {})", number_at(probe, "node"), it.ip, it.port);
  return it;
}

// Reports if another machine has the address of this node.
void check_own_address(const json& port, const NodeConfig& config, CheckReport& report) {
  const std::string state = text_at(port, "address");
  const std::string rival = text_at(port, "rival");
  const std::string what =
      fmt::format("address {} on port {}", address_text(config.nodes[config.rank]), text_at(port, "name"));
  constexpr const char* kAdvice =
      "give every node its own rank (`rank`, or `gradlaned --rank`) and an address that no other machine has";
  if (state == "taken") return report.fail(what, fmt::format("it is in use by {}", rival), kAdvice);
  if (!rival.empty()) report.fail(what, fmt::format("{} has it too", rival), kAdvice);
}

bool check_address(const NeighbourReport& it, const NodeConfig& config, CheckReport& report) {
  const std::string what = fmt::format("address of {}", it.name);
  if (!flag_at(it.probe, "arp")) {
    const std::string from = text_at(it.news, "speaks_from");
    const std::string why = fmt::format("no machine answers ARP requests for {} on port {}", it.ip, it.port);
    if (!from.empty()) {
      report.fail(what, fmt::format("{}, but node {} sends from {}", why, number_at(it.probe, "node"), from),
                  "make `nodes` the same in both files");
    } else {
      report.fail(
          what, why,
          "check that its daemon runs, that its `nodes` have this address, and that both are in one network (VLAN)");
    }
    return false;
  }
  const size_t node = number_at(it.probe, "node");
  const bool configured = node < config.nodes.size() && config.nodes[node].mac;
  report.ok(fmt::format("{}: {}", what, configured ? "configured" : "ARP is answered"));
  return true;
}

// Reports why a neighbour that uses sockets does not answer, as far as the errors of datagrams show it.
void tell_reach(const NeighbourReport& it, const std::string& what, const std::string& why, uint16_t port,
                CheckReport& report) {
  switch (*it.reach) {
    case Reach::kRefused:
      return report.fail(what, fmt::format("{}, and UDP port {} is closed there", why, port),
                         "start its daemon; `udp_port` must be the same on all nodes");
    case Reach::kUnreachable:
      return report.fail(
          what, fmt::format("{}, and {} cannot be reached", why, it.ip),
          "check that the machine is on and has this address, and look at the routes and firewalls on the way");
    case Reach::kForbidden:
      return report.fail(what, fmt::format("{}, and this machine blocks packets that it sends there", why),
                         fmt::format("let UDP port {} pass its firewall in both directions", port));
    case Reach::kNoError:
      break;
  }
  report.fail(what, fmt::format("{}, and no error came back for UDP port {}", why, port),
              "check that the machine is on, and let this port pass all firewalls in both directions");
}

bool check_round_trip(const NeighbourReport& it, const NodeConfig& config, CheckReport& report) {
  const std::string what = fmt::format("round trip to {}", it.name);
  if (number_at(it.probe, "answered") != 0) {
    const json rtt = object_at(it.probe, "rtt_us");
    const auto micros = [&rtt](const char* key) { return rtt.contains(key) ? rtt[key].get<double>() : 0.0; };
    report.ok(fmt::format("{}: median {:.0f} us, minimum {:.0f}", what, micros("median"), micros("min")));
    return true;
  }
  const std::string why = fmt::format("none of {} probes was answered", number_at(it.probe, "sent"));
  constexpr const char* kOneKey = "set the same security and the same key file (auth: {key_file: ...}) on all nodes";
  if (number_at(it.news, "tagged") != 0) {
    report.fail(what, why + ", and packets from there have tags, but this node has no key", kOneKey);
  } else if (number_at(it.news, "untagged") != 0) {
    report.fail(what, why + ", and packets from there have no tags, but this node has a key", kOneKey);
  } else if (number_at(it.news, "forged") != 0) {
    report.fail(what, why + ", and packets from there have no tag of our key", kOneKey);
  } else if (const std::string known = text_at(it.news, "trouble");
             !known.empty() && number_at(it.news, "path_mtu") == 0) {
    report.fail(what, why, known);
  } else if (it.reach) {
    tell_reach(it, what, why, udp_port_of(config, config.nodes[number_at(it.probe, "node")]), report);
  } else {
    report.fail(what, why,
                "check that its daemon still runs, with the same `udp_port`, and that no firewall or switch drops UDP");
  }
  return false;
}

void check_full_size(const NeighbourReport& it, const NodeConfig& config, CheckReport& report) {
  const std::string what = fmt::format("packets of {} bytes to {}", config.mtu, it.name);
  const auto verdict = it.probe.find("mtu_ok");
  if (verdict == it.probe.end() || !verdict->is_boolean()) {
    return report.note(what, "not tried: no time was left; allow more with --time");
  }
  if (verdict->get<bool>()) return report.ok(fmt::format("{} and back", what));
  const uint64_t largest = number_at(it.probe, "largest_ok");
  report.fail(what, fmt::format("they get lost; the largest packet that arrives there and back has {} bytes", largest),
              fmt::format("raise the MTU of every switch port on the way to {}, or set mtu: {} on all nodes",
                          config.mtu, std::max<uint64_t>(largest, kMinIpMtu)));
}

unsigned tos_value(const std::string& text) {
  return text.starts_with("0x") ? static_cast<unsigned>(parse_whole(text).value_or(0)) : 0;
}

void check_tos(const NeighbourReport& it, const json& tos, CheckReport& report) {
  const std::string sent = text_at(tos, "sent");
  const std::string there = text_at(tos, "there");
  const std::string back = text_at(tos, "back");
  const std::string what = fmt::format("ToS {} ({}) to {}", sent, text_at(tos, "class"), it.name);
  constexpr const char* kAdvice = "a switch on the way rewrites DSCP: make its ports trust DSCP";
  if (there.empty() || back.empty()) {
    return report.fail(what, "packets with this ToS get lost, but others are answered",
                       "a switch or a firewall on the way drops them: let it pass this DSCP");
  }
  const auto same = [&sent](const std::string& other) {
    return (tos_value(sent) & kDscp) == (tos_value(other) & kDscp);
  };
  if (!same(there)) report.fail(what, fmt::format("{} arrives as {} at {}", sent, there, it.ip), kAdvice);
  if (!same(back)) {
    report.fail(fmt::format("ToS {} ({}) from {}", sent, text_at(tos, "class"), it.name),
                fmt::format("{} arrives as {} here", sent, back), kAdvice);
  }
  if (same(there) && same(back)) report.ok(what + " and back");
}

bool by_sockets(const NeighbourReport& it, const NodeConfig& config) {
  const PortConfig* const port = port_of_sockets(config);
  return port != nullptr && port->name == it.port;
}

// Returns the neighbours that use sockets and have not answered any probe.
std::vector<size_t> silent_by_sockets(const NodeConfig& config, const json& document) {
  std::vector<size_t> silent;
  for (const json& probe : list_at(document, "probes")) {
    const size_t node = number_at(probe, "node");
    if (node >= config.nodes.size() || !by_sockets(subject_of(probe, document), config)) continue;
    if (number_at(probe, "answered") == 0) silent.push_back(node);
  }
  return silent;
}

std::vector<Reach> reach_of(const std::vector<size_t>& nodes, const NodeConfig& config) {
  std::vector<Endpoint> to;
  for (const size_t node : nodes) {
    to.push_back({address_of(config.nodes[node]), udp_port_of(config, config.nodes[node])});
  }
  const PortConfig* const port = port_of_sockets(config);
  const IpAddress own = address_of(config.nodes[config.rank]);
  return reach(port != nullptr && port->device == kAnyWord ? nullptr : &own, to);
}

void check_agreement(const NeighbourReport& it, const json& document, const NodeConfig& config, CheckReport& report) {
  const std::string what = fmt::format("configuration of {}", it.name);
  const json theirs = object_at(it.probe, "config");
  std::vector<std::string> differences;
  const auto compare = [&](const char* key, const std::string& ours, const std::string& other) {
    if (ours != other) differences.push_back(fmt::format("{} is {} here and {} there", key, ours, other));
  };
  const auto number = [&](const char* key) { return std::to_string(number_at(theirs, key)); };
  if (number_at(theirs, "node") != number_at(it.probe, "node")) {
    differences.push_back(fmt::format("it says that it is node {}", number_at(theirs, "node")));
  }
  compare("the number of nodes", std::to_string(config.nodes.size()), number("nodes"));
  compare("mtu", std::to_string(config.mtu), number("mtu"));
  compare("codec", text_at(document, "codec"), text_at(theirs, "codec"));
  compare("the version of the protocol", std::to_string(kProtocolVersion), number("protocol"));
  const json digest = object_at(it.probe, "digest");
  // Hellos carry all settings one by one. If hellos have arrived from this neighbour, "difference" names the settings
  // that differ.
  const std::string named = text_at(it.news, "difference");
  if (text_at(digest, "ours") != text_at(digest, "theirs")) {
    differences.push_back(
        named.empty() ? "something in `nodes`, trainers, local_reduce, workers.lanes, udp_port or tos differs" : named);
  } else if (differences.empty() && !named.empty()) {
    differences.push_back(named);
  }
  if (differences.empty()) return report.ok(what + " agrees with ours");
  report.fail(what, fmt::format("{}", fmt::join(differences, ", ")),
              "make the files equal: gradlaned --check --config FILE prints all settings");
}

}  // namespace

void check_ports(const NodeConfig& config, const json& document, CheckReport& report) {
  for (const json& port : list_at(document, "ports")) {
    const std::string link = text_at(port, "link");
    const std::string what = fmt::format("link of port {}", text_at(port, "name"));
    if (link == "up") {
      report.ok(what + ": up");
    } else {
      report.fail(what, link == "starting" ? "it has not come up yet" : "down",
                  "check the cable; a link of memif or vhost comes up when the daemon at its other end runs");
    }
    check_own_address(port, config, report);
  }
  if (config.ports.empty() && config.nodes.size() > 1)
    report.fail("ports", "the configuration has none", "see `ports`");
  if (object_at(document, "faults").empty()) return;
  report.note("faults", "this node drops or damages packets on purpose (`faults` in its configuration)");
}

void check_neighbours(const NodeConfig& config, const json& document, CheckReport& report) {
  const std::vector<size_t> silent = silent_by_sockets(config, document);
  const std::vector<Reach> ways = reach_of(silent, config);
  for (const json& probe : list_at(document, "probes")) {
    NeighbourReport it = subject_of(probe, document);
    const auto way = std::ranges::find(silent, number_at(probe, "node"));
    if (way != silent.end()) it.reach = ways[static_cast<size_t>(way - silent.begin())];
    // The kernel does ARP for neighbours that use sockets, so only the addresses of others are checked.
    if (!by_sockets(it, config) && !check_address(it, config, report)) continue;
    if (!check_round_trip(it, config, report)) continue;
    check_full_size(it, config, report);
    for (const json& tos : list_at(probe, "tos")) check_tos(it, tos, report);
    check_agreement(it, document, config, report);
  }
}

void check_ring(const json& document, CheckReport& report) {
  if (ring_is_ready(document)) return report.ok("the ring is ready");
  std::vector<std::string> reasons;
  const auto add = [&reasons](const std::string& reason) {
    if (!reason.empty() && std::ranges::find(reasons, reason) == reasons.end()) reasons.push_back(reason);
  };
  for (const json& rank : list_at(document, "ranks")) {
    add(text_at(rank, "refused"));
    const auto missing = rank.find("missing");
    if (missing != rank.end() && missing->is_number()) {
      add(fmt::format("no messages from rank {} yet", missing->get<uint64_t>()));
    }
  }
  for (const json& neighbour : list_at(document, "neighbours")) {
    const std::string why = text_at(neighbour, "why");
    if (!why.empty()) add(fmt::format("node {}: {}", number_at(neighbour, "node"), why));
  }
  report.fail("ring", reasons.empty() ? "it is not ready" : fmt::format("not ready: {}", fmt::join(reasons, "; ")),
              "run this check on the other nodes too, at the same time or while their daemons run");
}

bool all_links_up(const json& document) {
  return std::ranges::all_of(list_at(document, "ports"), [](const json& it) { return text_at(it, "link") == "up"; });
}

bool ring_is_ready(const json& document) {
  const json ranks = list_at(document, "ranks");
  return !ranks.empty() && std::ranges::all_of(ranks, [](const json& it) { return text_at(it, "ring") == "whole"; });
}

bool all_neighbours_answer(const json& document) {
  return std::ranges::all_of(list_at(document, "probes"),
                             [](const json& it) { return number_at(it, "answered") != 0; });
}

}  // namespace gradlane
