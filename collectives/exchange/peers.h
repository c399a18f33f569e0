// peers.h - operations that neighbours have announced (packet path)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/exchange/operation_state.h"
#include "collectives/exchange_config.h"
#include "collectives/strategy/strategy.h"
#include "collectives/wire.h"

namespace gradlane {

class Peers {
 public:
  // The start of an operation, as a neighbour has announced it.
  struct Start {
    uint32_t number = 0;
    bool valid = false;
    uint8_t stage = 0;           // latest stage that it has announced
    std::optional<float> offer;  // its offer for the value that ranks agree on
    Descriptor descriptor{};
  };

  explicit Peers(size_t links) : peers_(links) {
    for (Peer& peer : peers_) peer.starts.resize(kMaxOperations);
  }

  // Begins a new session, in which no neighbour has started anything.
  void reset() noexcept {
    for (Peer& peer : peers_) {
      peer.started = 0;
      for (Start& start : peer.starts) start.valid = false;
    }
  }

  // Notes an announcement. Neighbours start operations in order, but announcements may arrive out of order. Ignores one
  // whose slot already has a later operation.
  void note(size_t link, Start heard) noexcept {
    Peer& peer = peers_[link];
    if (static_cast<int32_t>(heard.number + 1 - peer.started) > 0) peer.started = heard.number + 1;
    Start& known = peer.starts[heard.number % peer.starts.size()];
    if (known.valid && static_cast<int32_t>(heard.number - known.number) < 0) return;
    if (known.valid && known.number == heard.number) {
      heard.stage = std::max(heard.stage, known.stage);
      if (known.offer) heard.offer = known.offer;
    }
    known = heard;
  }

  // Returns whether the neighbour has started an operation with the number of this one.
  [[nodiscard]] bool started(size_t link, const OperationState& it) const noexcept {
    return static_cast<int32_t>(peers_[link].started - it.number) > 0;
  }
  // Returns whether the neighbour by step.link has announced that it accepts runs of the operation's present stage.
  [[nodiscard]] bool takes(const OperationState& it, const Step& step) const noexcept {
    const unsigned stage = it.route.stage + it.prepared.stage_offset;
    if (stage == 0) return started(step.link, it);
    const Start* const start = start_of(step.link, it);
    return start != nullptr && start->stage >= stage;
  }
  // Returns the neighbour's announcement of the operation; null if there is none yet.
  [[nodiscard]] const Start* start_of(size_t link, const OperationState& it) const noexcept {
    const Start& start = peers_[link].starts[it.number % peers_[link].starts.size()];
    return start.valid && start.number == it.number ? &start : nullptr;
  }

  // Returns the first link by which no offer for this operation has arrived; the number of links if all offers have.
  [[nodiscard]] size_t unheard(const OperationState& it) const noexcept {
    size_t link = 0;
    for (; link < peers_.size(); ++link) {
      const Start* const start = start_of(link, it);
      if (start == nullptr || !start->offer) break;
    }
    return link;
  }

  // Returns whether any neighbour has started the operation with this number.
  [[nodiscard]] bool any_started(uint32_t number) const noexcept {
    return std::ranges::any_of(peers_,
                               [number](const Peer& peer) { return static_cast<int32_t>(peer.started - number) > 0; });
  }

 private:
  struct Peer {
    uint32_t started = 0;       // number of operations that it has started
    std::vector<Start> starts;  // latest announcements, indexed by number modulo their count
  };
  std::vector<Peer> peers_;
};

}  // namespace gradlane
