// peers.h - what neighbours have said of their operations (packet path)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/exchange/running.h"
#include "collectives/exchange_config.h"
#include "collectives/strategy/strategy.h"
#include "collectives/wire.h"

namespace gradlane {

class Peers {
 public:
  // The start of an operation, as a neighbour has told it.
  struct Start {
    uint32_t number = 0;
    bool valid = false;
    uint8_t stage = 0;           // that it has come to
    std::optional<float> offer;  // of what ranks agree on
    Descriptor descriptor{};
  };

  explicit Peers(size_t links) : peers_(links) {
    for (Peer& peer : peers_) peer.starts.resize(kMaxOperations);
  }

  // A new session: nobody has started anything.
  void reset() noexcept {
    for (Peer& peer : peers_) {
      peer.started = 0;
      for (Start& start : peer.starts) start.valid = false;
    }
  }

  // They start in order, but this may come out of order, even when its place is that of a later one.
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

  // The neighbour has started an operation with the number of this one.
  [[nodiscard]] bool started(size_t link, const Running& it) const noexcept {
    return static_cast<int32_t>(peers_[link].started - it.number) > 0;
  }
  // It takes runs of the present stage by this step.
  [[nodiscard]] bool takes(const Running& it, const Step& step) const noexcept {
    const unsigned stage = it.task.stage + it.prepared.lead;
    if (stage == 0) return started(step.link, it);
    const Start* const start = start_of(step.link, it);
    return start != nullptr && start->stage >= stage;
  }
  // What it has said of the operation; null: nothing yet.
  [[nodiscard]] const Start* start_of(size_t link, const Running& it) const noexcept {
    const Start& start = peers_[link].starts[it.number % peers_[link].starts.size()];
    return start.valid && start.number == it.number ? &start : nullptr;
  }

  // The first link by which no offer for this operation has come; as many as there are: all have.
  [[nodiscard]] size_t unheard(const Running& it) const noexcept {
    size_t link = 0;
    for (; link < peers_.size(); ++link) {
      const Start* const start = start_of(link, it);
      if (start == nullptr || !start->offer) break;
    }
    return link;
  }

  // A neighbour has started the operation with this number.
  [[nodiscard]] bool any_started(uint32_t number) const noexcept {
    return std::ranges::any_of(peers_,
                               [number](const Peer& peer) { return static_cast<int32_t>(peer.started - number) > 0; });
  }

 private:
  struct Peer {
    uint32_t started = 0;       // so many
    std::vector<Start> starts;  // the latest; by number modulo their count
  };
  std::vector<Peer> peers_;
};

}  // namespace gradlane
