// owner_algorithm.h - blocks with owners: contributions to them, sums in turns, results to all (packet path)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "collectives/exchange/algorithm.h"
#include "collectives/exchange/block_sender.h"
#include "collectives/exchange/running.h"

namespace gradlane {

// For `direct` and `aggregator:R`: each rank sends its elements of a block to the owner, which adds them in one order
// (Turns) and sends the results to all (Fanout). A broadcast has one block, the root's.
class OwnerAlgorithm final : public Algorithm {
 public:
  OwnerAlgorithm(Running& it, const EngineParts& parts);

  void begin() noexcept override;
  void prepared() noexcept override;
  void end() noexcept override;
  [[nodiscard]] bool accepts(const Run& run, size_t link, std::span<const Run> before) const noexcept override;
  void on_run(const Run& run, size_t link, bool relayed, Nanos now) noexcept override;
  [[nodiscard]] bool accepts_grant(unsigned block, size_t link) const noexcept override;
  void on_grant(unsigned block, size_t elements) noexcept override;
  void send_grants(Nanos now) noexcept override;
  bool send_own(Nanos now) noexcept override;
  [[nodiscard]] bool done() const noexcept override;
  [[nodiscard]] unsigned awaited() const noexcept override;
  [[nodiscard]] std::optional<unsigned> sender() const noexcept override { return awaited(); }
  [[nodiscard]] std::optional<Step> next_step() noexcept override { return sender_.next_step(it_); }
  // An owner on which it has failed tells all that take its results.
  [[nodiscard]] bool tells_dependents(bool on_this_rank) const noexcept override { return on_this_rank && owns(); }

 private:
  [[nodiscard]] bool owns() const noexcept { return own_ != it_.blocks.blocks(); }
  // All results of this rank's block, if it has one, are on their way.
  [[nodiscard]] bool all_queued() const noexcept { return !owns() || queued_ == it_.blocks.count(own_); }
  [[nodiscard]] unsigned turn_of(unsigned rank) const noexcept;
  [[nodiscard]] bool has_room(const Run& run, size_t link, std::span<const Run> before) const noexcept;
  void begin_turns() noexcept;
  void take_contribution(const Run& run, size_t link) noexcept;
  void add_own(size_t first, size_t count, uint8_t* sums, bool begins) noexcept;
  void queue_results(Nanos now) noexcept;
  bool queue_result(size_t count, Nanos now) noexcept;

  BlockSender sender_;
  unsigned own_ = 0;         // this rank's block; as many as there are blocks: none
  size_t queued_ = 0;        // its results that are on their way to all
  size_t results_left_ = 0;  // elements of results to receive
};

}  // namespace gradlane
