// ring_facts.cc - facts about a node's ring and its neighbours, from its ports and lanes (control thread only)
#include "dataplane/node/ring_facts.h"

#include <algorithm>
#include <array>
#include <bit>

#include "config/addresses.h"
#include "config/loader.h"
#include "config/values.h"
#include "dataplane/device/eal.h"

namespace gradlane {
namespace {

constexpr Nanos kRivalTime = 15 * kSecond;
constexpr Nanos kLately = 2 * kSecond;  // time for which a neighbour counts as heard; hellos arrive far more often

const Port* port_to(const Node& node, unsigned other) {
  const auto found = std::ranges::find_if(node.ports(), [other](const NodePort& it) {
    const auto& nodes = it.port->nodes();
    return nodes.empty() || std::ranges::find(nodes, other) != nodes.end();
  });
  return found == node.ports().end() ? nullptr : found->port.get();
}

// Returns how the settings of a neighbour differ from ours. It compares them if hellos of the neighbour are for none of
// our ranks, because it expects other ranks here.
Failure difference_to(const NodeConfig& config, const Neighbour& neighbour, Nanos now) {
  const Nanos at = neighbour.peer_settings_at.load(std::memory_order_relaxed);
  if (at == 0 || now - std::min(at, now) >= RingWatch::kLately) return {};
  const PeerSettings theirs = std::bit_cast<PeerSettings>(neighbour.told.load(std::memory_order_relaxed));
  const RingSettings ours = ring_settings(config);
  const struct {
    Field field;
    unsigned ours;
    unsigned theirs;
  } fields[] = {{Field::kNodes, ours.nodes, theirs.nodes},
                {Field::kTrainers, ours.trainers, theirs.trainers},
                {Field::kLocalReduce, ours.local_reduce, theirs.local_reduce},
                {Field::kLanes, ours.lanes, theirs.lanes}};
  for (const auto& it : fields) {
    const auto rank = static_cast<uint16_t>(neighbour.node * theirs.trainers);
    if (theirs.nodes != 0 && it.ours != it.theirs) return {FailureCode::kRefused, rank, it.field, it.ours, it.theirs};
  }
  return {};
}

}  // namespace

NeighbourFacts::PortState state_of(const Port& port) {
  using State = NeighbourFacts::PortState;
  if (!port.started()) return State::kStarting;
  return port.link_up() ? State::kUp : State::kDown;
}

// A host that had the address in the last kRivalTime counts, too.
std::string rival_of(const NodePort& it, Nanos now) {
  const bool lately = it.address_log.conflict_at != 0 && now - it.address_log.conflict_at < kRivalTime;
  if (!lately && it.claim->state() != AddressClaim::State::kTaken) return "";
  return mac_text(unpack_mac(it.claim->rival()));
}

RingFacts ring_facts(const Node& node, Nanos now) {
  const NodeConfig& config = node.config();
  RingFacts facts{.node = config.rank,
                  .udp_port = udp_port_of(config, config.nodes[config.rank]),
                  .ranks_per_node = ranks_per_node(config),
                  .mtu = config.mtu,
                  .known = true,
                  .ready = true,
                  .missing = {},
                  .rival = {},
                  .neighbours = {}};
  for (const NodePort& it : node.ports()) {
    if (facts.rival.empty()) facts.rival = rival_of(it, now);
  }
  facts.neighbours.reserve(node.neighbours().size());
  std::array<NeighbourFacts*, kMaxNodes> by_node{};
  const auto of_rank = [&](unsigned rank) {
    const unsigned number = rank / facts.ranks_per_node;
    return number < kMaxNodes ? by_node[number] : nullptr;
  };
  for (const auto& neighbour : node.neighbours()) {
    NeighbourFacts& it = facts.neighbours.emplace_back();
    by_node.at(neighbour->node) = &it;
    it.node = neighbour->node;
    it.address = address_text(config.nodes[it.node]);
    it.udp_port = udp_port_of(config, config.nodes[it.node]);
    it.up = true;
    it.arp_tries = neighbour->arp_tries.load(std::memory_order_relaxed);
    it.forged = neighbour->forged.load(std::memory_order_relaxed);
    it.untagged = neighbour->untagged.load(std::memory_order_relaxed);
    it.wrong_tos = neighbour->wrong_tos.load(std::memory_order_relaxed);
    it.last_tos = neighbour->last_tos.load(std::memory_order_relaxed);
    it.other_port = neighbour->other_port.exchange(0, std::memory_order_relaxed);
    it.asks_for = neighbour->asks_for.exchange(0, std::memory_order_relaxed);
    it.refused = difference_to(config, *neighbour, now);
    it.path_bytes = neighbour->path_bytes.load(std::memory_order_relaxed);
    it.mac_known = neighbour->mac.load(std::memory_order_relaxed) != 0;
    if (const Port* const port = port_to(node, it.node)) {
      it.port = port->name();
      it.port_state = state_of(*port);
      it.local = port->local_link();
      it.stalls_on_long_frame = port->stalls_on_long_frame();
    }
  }
  node.for_each_queue([&](const PortQueue& queue, unsigned) {
    const PortQueue::Stranger stranger = queue.stranger();
    if (stranger.at == 0 || now - std::min(stranger.at, now) >= RingWatch::kLately) return;
    if (NeighbourFacts* const of = of_rank(stranger.rank)) of->speaks_from = address_text(config, stranger.ip);
  });
  node.for_each_lane([&](const Lane& lane, unsigned) {
    using State = RingSnapshot::State;
    const RingSnapshot ring = lane.ring_snapshot();
    facts.known &= ring.state != State::kUnknown;
    facts.ready &= ring.state == State::kReady;
    if (ring.state == State::kIncomplete && !facts.missing) facts.missing = ring.missing;
    for (size_t i = 0; i < lane.links(); ++i) {
      const LinkSnapshot link = lane.link_snapshot(i);
      NeighbourFacts* const to = of_rank(link.rank);
      if (to == nullptr) continue;
      to->up &= link.up;
      to->heard |= link.heard != 0 && now - std::min(link.heard, now) < kLately;
      if (link.refused) to->refused = link.refused;
      to->tagged += link.tagged;
      if (link.waiting_since != 0 && (to->waiting_since == 0 || link.waiting_since < to->waiting_since)) {
        to->waiting_since = link.waiting_since;
      }
    }
  });
  return facts;
}

}  // namespace gradlane
