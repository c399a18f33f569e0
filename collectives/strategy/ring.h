// ring.h - the routing rule of the ring
#pragma once

#include <array>
#include <span>

#include "collectives/strategy/strategy.h"

namespace gradlane {

// Ranks 0 to p-1 in a circle; all data goes from a rank to the next, its successor. (INCEPTIONN, MICRO 2018, algorithm
// 1; bandwidth-optimal: Patarasuk and Yuan, 2009.)
//
// Block b of a sum starts at rank b+1, which sends its own elements as a partial sum. Every rank on the way adds its
// own and passes the sum on, until it comes to rank b, the last one to add: it has the result. This is reduce-scatter.
// In an all-reduce the result goes round once more: rank b sends it to b+1, and each rank stores it and passes it on,
// to rank b-1, where its way ends. All-gather is the second half alone, and broadcast an all-gather of one block.
//
//   p = 4, block 0:   reduce   1 -> 2 -> 3 -> 0          gather   0 -> 1 -> 2 -> 3
class Ring final : public Strategy {
 public:
  Ring(unsigned world, unsigned rank) noexcept;

  [[nodiscard]] std::span<const unsigned> neighbours() const noexcept override { return {neighbours_.data(), count_}; }
  [[nodiscard]] unsigned blocks(const Operation& operation) const noexcept override;
  [[nodiscard]] Step start(const Operation& operation, unsigned block) const noexcept override;
  [[nodiscard]] Step arrival(const Operation& operation, Phase phase, unsigned block) const noexcept override;
  [[nodiscard]] unsigned sources() const noexcept override { return count_ == 0 ? 0 : 1U << (count_ - 1); }
  [[nodiscard]] Step failure(unsigned origin) const noexcept override;

 private:
  [[nodiscard]] unsigned after(unsigned rank) const noexcept { return rank + 1 == world_ ? 0 : rank + 1; }
  [[nodiscard]] unsigned before(unsigned rank) const noexcept { return (rank == 0 ? world_ : rank) - 1; }
  [[nodiscard]] Step pass_result(unsigned from) const noexcept;

  unsigned world_;
  unsigned rank_;
  std::array<unsigned, 2> neighbours_{};  // the successor, then the predecessor unless they are one
  unsigned count_;
};

}  // namespace gradlane
