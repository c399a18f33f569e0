// ring_watch.cc - the reasons why a ring is not ready, as text (control thread only)
#include "dataplane/watch/ring_watch.h"

#include <fmt/format.h>

#include <utility>

#include "config/values.h"

namespace gradlane {
namespace {

constexpr size_t kMostLines = 8;  // lines for missing neighbours at a time

// Returns "node 2 (10.77.0.3)".
std::string name_of(const NeighbourFacts& facts) { return fmt::format("node {} ({})", facts.node, facts.address); }

// Returns " for 5 s", or " yet" for a time of less than a second.
std::string span_text(Nanos time) { return time < kSecond ? " yet" : fmt::format(" for {} s", time / kSecond); }

// Returns a text if this node or the neighbour has another address than `nodes` says; "": that is not known.
std::string address_text(const NeighbourFacts& facts, const std::string& name) {
  if (facts.asks_for != 0) {
    return fmt::format(
        "{} sends ARP requests for {}, which is not in `nodes` here: `nodes` must be the same in both files", name,
        ip_text(facts.asks_for));
  }
  if (facts.speaks_from.empty()) return "";
  return fmt::format("node {} sends from {}, but `nodes` has {} here: `nodes` must be the same in both files",
                     facts.node, facts.speaks_from, facts.address);
}

// Returns a text if one of the two has a key and the other has none or a different one.
std::string key_text(const NeighbourFacts& facts, const std::string& name) {
  if (facts.tagged != 0) {
    return fmt::format(
        "packets of {} have tags, but this node has no key: set the same security and auth.key_file on all nodes",
        name);
  }
  if (facts.forged == 0 || facts.heard) return "";
  if (facts.untagged != 0) {
    return fmt::format("packets of {} have no tags ({} so far): it has no auth.key_file, but this node has one", name,
                       facts.forged);
  }
  return fmt::format("packets of {} have wrong tags ({} so far): its auth.key_file or security differs", name,
                     facts.forged);
}

}  // namespace

std::string problem_text(const NeighbourFacts& facts) {
  if (facts.wrong_tos != 0) {
    return fmt::format(
        "{} packets of {} were dropped, because their ToS is not in `tos` (last: 0x{:02x}): a switch on the path "
        "rewrites DSCP, or `tos` differs there; run gradlane check",
        facts.wrong_tos, name_of(facts), facts.last_tos);
  }
  if (facts.other_port != 0 && !facts.up) {
    return fmt::format(
        "packets of {} arrive at UDP port {}, which this node does not use: `udp_port` must be the same on "
        "all nodes",
        name_of(facts), facts.other_port);
  }
  return "";
}

std::string path_text(const NeighbourFacts& facts, size_t mtu) {
  if (facts.path_bytes == 0) return "";
  return fmt::format(
      "the path to {} takes packets of at most {} bytes, but mtu is {}: set mtu: {} on all nodes (found by "
      "probes)",
      name_of(facts), facts.path_bytes, mtu, facts.path_bytes);
}

std::string missing_text(const NeighbourFacts& facts, uint16_t udp_port, Nanos missing_for) {
  using PortState = NeighbourFacts::PortState;
  if (facts.up) return "";
  const std::string name = name_of(facts);
  if (facts.port_state != PortState::kUp) {
    const bool starting = facts.port_state == PortState::kStarting;
    return fmt::format("port {}: {}{}", facts.port, starting ? "not started yet" : "link is down",
                       facts.local ? fmt::format(": the daemon of node {} is not running", facts.node) : "");
  }
  if (facts.refused.code == FailureCode::kDuplicateRank) return fmt::format("refused: {}", failure_text(facts.refused));
  if (facts.refused) {
    return fmt::format("refused: rank {} of {} is configured differently{}", facts.refused.rank, name,
                       difference_text(facts.refused, "here", "there"));
  }
  if (const std::string text = address_text(facts, name); !text.empty()) return text;
  if (!facts.mac_known) {
    const std::string after = missing_for < kSecond ? "yet" : fmt::format("after {} s", missing_for / kSecond);
    return fmt::format("no answer from {} on port {} {} (ARP, {} {})", facts.address, facts.port, after,
                       facts.arp_tries, facts.arp_tries == 1 ? "try" : "tries");
  }
  if (const std::string text = key_text(facts, name); !text.empty()) return text;
  if (const std::string text = problem_text(facts); !text.empty()) return text;
  if (facts.heard) {
    return fmt::format(
        "packets of {} arrive, but it has not received any from this node{}: check UDP port {} there, and its log",
        name, span_text(missing_for), facts.udp_port == 0 ? udp_port : facts.udp_port);
  }
  return fmt::format("no hello from {}{}: its daemon is not running, or UDP port {} is filtered", name,
                     span_text(missing_for), udp_port);
}

// Returns the facts, with signs of problems cleared that are older than kLately.
NeighbourFacts RingWatch::recent(Seen& seen, const NeighbourFacts& facts, Nanos now) {
  if (facts.tagged != seen.facts.tagged) seen.tagged_at = now;
  if (facts.wrong_tos != seen.facts.wrong_tos) seen.wrong_tos_at = now;
  if (facts.asks_for != 0) seen.asked_at = now;
  if (facts.other_port != 0) seen.other_port_at = now;
  const auto lately = [now](Nanos at) { return at != 0 && now - at < kLately; };
  NeighbourFacts it = facts;
  if (!lately(seen.tagged_at)) it.tagged = 0;
  if (!lately(seen.wrong_tos_at)) it.wrong_tos = 0;
  if (it.asks_for == 0 && lately(seen.asked_at)) it.asks_for = seen.facts.asks_for;
  if (it.other_port == 0 && lately(seen.other_port_at)) it.other_port = seen.facts.other_port;
  return it;
}

void RingWatch::look_at_neighbours(const RingFacts& facts, Nanos now) {
  seen_.resize(facts.neighbours.size());
  for (size_t i = 0; i < seen_.size(); ++i) {
    Seen& seen = seen_[i];
    if (facts.neighbours[i].forged != seen.facts.forged) {
      seen.forged_at = now;
    } else if (now - seen.forged_at >= kForgedPause) {
      seen.forged_before = seen.facts.forged;
    }
    NeighbourFacts since = recent(seen, facts.neighbours[i], now);
    seen.facts = facts.neighbours[i];
    seen.facts.asks_for = since.asks_for;
    seen.facts.other_port = since.other_port;
    if (seen.facts.up) {
      seen.missing_since = 0;
      seen.forged_before = seen.facts.forged;
    } else if (seen.missing_since == 0) {
      seen.missing_since = now;
    }
    since.forged -= seen.forged_before;
    seen.why = missing_text(since, facts.udp_port, now - seen.missing_since);
    seen.trouble = problem_text(since);
    if (seen.trouble.empty()) seen.trouble = path_text(since, facts.mtu);
  }
}

std::vector<RingLine> RingWatch::lines_of(const RingFacts& facts) const {
  using Level = RingLine::Level;
  std::vector<RingLine> lines;
  std::vector<unsigned> others;
  const auto add = [&](const Seen& seen) {
    if (lines.size() == kMostLines) return others.push_back(seen.facts.node);
    lines.push_back({seen.facts.refused ? Level::kError : Level::kWarning,
                     fmt::format("node {}: node {} is missing: {}", facts.node, seen.facts.node, seen.why)});
  };
  // Refused neighbours come first. They stay refused until somebody acts, so they must not be left out.
  for (const bool refused : {true, false}) {
    for (const Seen& seen : seen_) {
      if (!seen.why.empty() && static_cast<bool>(seen.facts.refused) == refused) add(seen);
    }
  }
  if (!others.empty()) {
    const bool one = others.size() == 1;
    lines.push_back({Level::kWarning, fmt::format("node {}: {} more {} missing: node{} {}", facts.node, others.size(),
                                                  one ? "is" : "are", one ? "" : "s", fmt::join(others, ", "))});
  }
  if (!lines.empty()) return lines;
  const std::string who = fmt::format("node {}: the ring is not ready", facts.node);
  if (!facts.rival.empty()) {
    return {{Level::kError,
             fmt::format("{}: {} uses this node's address, too, and neighbours refuse both", who, facts.rival)}};
  }
  if (!facts.missing) return {{Level::kWarning, who}};
  if (*facts.missing / facts.ranks_per_node == facts.node) {
    return {
        {Level::kWarning,
         fmt::format("{}: packets of the neighbours arrive, but they do not answer: check that packets of this node "
                     "arrive there, at UDP port {}",
                     who, facts.udp_port)}};
  }
  return {
      {Level::kWarning,
       fmt::format("{}: this node's neighbours are connected, but nothing was heard from rank {} on node {}; see its "
                   "log and the logs of its neighbours",
                   who, *facts.missing, *facts.missing / facts.ranks_per_node)}};
}

std::vector<RingLine> RingWatch::look(const RingFacts& facts, Nanos now) {
  look_at_neighbours(facts, now);
  if (!facts.known) return {};
  if (facts.ready) {
    incomplete_since_.reset();
    refused_.clear();
    if (std::exchange(ready_, true)) return {};
    started_ = true;
    return {{RingLine::Level::kInfo, fmt::format("node {}: the ring is ready", facts.node)}};
  }
  if (!incomplete_since_) {
    // Generations follow one another within milliseconds, and nodes start one after another. Nothing is logged about
    // that.
    incomplete_since_ = now;
    line_at_ = now + (started_ ? kAfterReady : kAtStart);
  }
  std::vector<Failure> refused;
  for (const NeighbourFacts& it : facts.neighbours) {
    if (it.refused) refused.push_back(it.refused);
  }
  const bool news = !refused.empty() && refused != refused_;
  if (!news && now < line_at_) return {};
  if (news) refused_ = std::move(refused);
  line_at_ = now + kAgain;
  ready_ = false;
  return lines_of(facts);
}

}  // namespace gradlane
