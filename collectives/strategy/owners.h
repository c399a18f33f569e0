// owners.h - the routing rules of direct and aggregator:R, the strategies whose blocks have owners
#pragma once

#include <cstddef>

#include "collectives/strategy/strategy.h"
#include "collectives/strategy/topology.h"

namespace gradlane {

// Each block has an owner. All other ranks send it their elements of the block. It adds them in the order of the ring
// (b+1, b+2, ..., b for block b), and sends the result to all others. So there are two hops for any number of ranks.
//
//   p = 4, block 0:   reduce   1, 2, 3 -> 0             gather   0 -> 1, 2, 3
//
// direct (HiPress, SOSP 2021: a parameter server in which every worker is a server): rank b owns block b. If there are
// fewer granules than ranks, the owner changes from operation to operation. aggregator:R: there is one block, and rank
// R owns it.
//
// Broadcast and reduce have one block, which the root owns. Kinds with delivers(kind) add nothing. Their block b goes
// from rank b to the root (gather), from the root to rank b (scatter), or from each rank to rank b (all-to-all).
class Owners final : public Strategy {
 public:
  // `strategy` is direct or an aggregator.
  Owners(const Topology& topology, const StrategyId& strategy, unsigned world, unsigned rank) noexcept;

  [[nodiscard]] Division division(const RouteKey& route) const noexcept override;
  [[nodiscard]] Step start(const RouteKey& route, unsigned block) const noexcept override;
  [[nodiscard]] Step arrival(const RouteKey& route, Phase phase, unsigned block, size_t link) const noexcept override;
  [[nodiscard]] LinkSet sources(const RouteKey& route) const noexcept override;
  [[nodiscard]] LinkSet dependents(const RouteKey& route) const noexcept override;
  [[nodiscard]] bool has_owners() const noexcept override { return true; }
  [[nodiscard]] bool rotates() const noexcept override { return direct(); }
  [[nodiscard]] unsigned owner(const RouteKey& route, unsigned block) const noexcept override;
  [[nodiscard]] unsigned first_of(const RouteKey& route, unsigned block) const noexcept override;
  [[nodiscard]] bool streams() const noexcept override { return direct() || strategy_.stream; }
  [[nodiscard]] unsigned senders() const noexcept override { return world_ - 1; }

 private:
  struct Delivery {
    unsigned from;
    unsigned to;
  };
  // Returns the sender and the receiver of a block in a kind with delivers(). `sender` counts only for an all-to-all.
  [[nodiscard]] static Delivery delivery(const RouteKey& route, unsigned block, unsigned sender) noexcept;
  [[nodiscard]] bool direct() const noexcept { return strategy_.kind == StrategyId::Kind::kDirect; }

  const Topology& topology_;
  StrategyId strategy_;
  unsigned world_;
  unsigned rank_;
};

}  // namespace gradlane
