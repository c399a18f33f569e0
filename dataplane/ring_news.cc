// ring_news.cc - why a ring is not whole, in words (control thread only)
#include "dataplane/ring_news.h"

#include <fmt/format.h>

#include <utility>

#include "config/values.h"

namespace gradlane {
namespace {

// "node 2 (10.77.0.3)"
std::string name_of(const NeighbourFacts& facts) { return fmt::format("node {} ({})", facts.node, ip_text(facts.ip)); }

// " for 5 s", or " yet" of what has just begun.
std::string span_text(Nanos time) { return time < kSecond ? " yet" : fmt::format(" for {} s", time / kSecond); }

}  // namespace

std::string missing_text(const NeighbourFacts& facts, uint16_t udp_port, bool auth, Nanos missing_for) {
  using PortState = NeighbourFacts::PortState;
  if (facts.up) return "";
  const std::string name = name_of(facts);
  if (facts.port_state != PortState::kUp) {
    const bool starting = facts.port_state == PortState::kStarting;
    return fmt::format("port {}: {}{}", facts.port, starting ? "it has not started" : "link is down",
                       facts.local ? fmt::format(": the daemon of node {} is not running", facts.node) : "");
  }
  if (facts.refused.code == FailureCode::kDoubled) return fmt::format("refused: {}", failure_text(facts.refused));
  if (facts.refused) {
    return fmt::format("refused: rank {} of {} is configured differently{}", facts.refused.rank, name,
                       difference_text(facts.refused, "here", "there"));
  }
  if (!facts.mac_known) {
    const std::string after = missing_for < kSecond ? "yet" : fmt::format("after {} s", missing_for / kSecond);
    return fmt::format("no answer from {} on port {} {} (ARP, {} {})", ip_text(facts.ip), facts.port, after,
                       facts.arp_tries, facts.arp_tries == 1 ? "try" : "tries");
  }
  if (facts.forged != 0 && !facts.heard) {
    return fmt::format("packets of {} are not authentic ({} so far): it has another key, or none", name, facts.forged);
  }
  if (facts.heard) {
    return fmt::format("{} is heard, but has not met this node{}: nothing arrives there at UDP port {}{}", name,
                       span_text(missing_for), udp_port,
                       auth ? "" : ", or it has an auth.key_file, and this node none");
  }
  return fmt::format("no hello from {}{}: its daemon is not running, or UDP port {} is filtered", name,
                     span_text(missing_for), udp_port);
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
    seen.facts = facts.neighbours[i];
    if (seen.facts.up) {
      seen.missing_since = 0;
      seen.forged_before = seen.facts.forged;
    } else if (seen.missing_since == 0) {
      seen.missing_since = now;
    }
    NeighbourFacts since = seen.facts;
    since.forged -= seen.forged_before;
    seen.why = missing_text(since, facts.udp_port, facts.auth, now - seen.missing_since);
  }
}

std::vector<RingLine> RingWatch::lines_of(const RingFacts& facts) const {
  using Level = RingLine::Level;
  std::vector<RingLine> lines;
  for (const Seen& seen : seen_) {
    if (seen.why.empty()) continue;
    lines.push_back({seen.facts.refused ? Level::kError : Level::kWarning,
                     fmt::format("node {}: node {} is missing: {}", facts.node, seen.facts.node, seen.why)});
  }
  if (!lines.empty()) return lines;
  const std::string who = fmt::format("node {}: the ring is not whole", facts.node);
  if (!facts.rival.empty()) {
    return {{Level::kError,
             fmt::format("{}: {} takes itself for this node, too, and neighbours refuse both", who, facts.rival)}};
  }
  if (!facts.missing) return {{Level::kWarning, who}};
  if (*facts.missing / facts.ranks_per_node == facts.node) {
    return {{Level::kWarning,
             fmt::format("{}: this node hears its neighbours, but they do not answer it: do its packets arrive there, "
                         "at UDP port {}?",
                         who, facts.udp_port)}};
  }
  return {{Level::kWarning,
           fmt::format("{}: this node's neighbours are there, but nothing is known of rank {} on node {}; its log and "
                       "those of the nodes beside it say more",
                       who, *facts.missing, *facts.missing / facts.ranks_per_node)}};
}

std::vector<RingLine> RingWatch::look(const RingFacts& facts, Nanos now) {
  look_at_neighbours(facts, now);
  if (!facts.known) return {};
  if (facts.whole) {
    incomplete_since_.reset();
    refused_.clear();
    if (std::exchange(whole_, true)) return {};
    started_ = true;
    return {{RingLine::Level::kInfo, fmt::format("node {}: the ring is whole", facts.node)}};
  }
  if (!incomplete_since_) {
    // Generations follow one another within milliseconds, and nodes start one after the other: of that nothing is said.
    incomplete_since_ = now;
    line_at_ = now + (started_ ? kAfterWhole : kAtStart);
  }
  std::vector<Failure> refused;
  for (const NeighbourFacts& it : facts.neighbours) {
    if (it.refused) refused.push_back(it.refused);
  }
  const bool news = !refused.empty() && refused != refused_;
  if (!news && now < line_at_) return {};
  if (news) refused_ = std::move(refused);
  line_at_ = now + kAgain;
  whole_ = false;
  return lines_of(facts);
}

}  // namespace gradlane
