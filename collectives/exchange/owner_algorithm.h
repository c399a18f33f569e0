// owner_algorithm.h - blocks with owners: contributions to them, sums in turns, results to all (packet path)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "collectives/exchange/algorithm.h"
#include "collectives/exchange/block_sender.h"
#include "collectives/exchange/operation_state.h"

namespace gradlane {

// The algorithm of `direct` and `aggregator:R`. Each rank sends its elements of a block to the owner. The owner adds
// them in a fixed order (OrderedReducer), and sends the results to all ranks (Fanout). A broadcast has one block, which
// the root owns.
class OwnerAlgorithm final : public Algorithm {
 public:
  OwnerAlgorithm(OperationState& it, const EngineParts& parts);

  void begin() noexcept override;
  void on_scan_agreed() noexcept override;
  void end() noexcept override;
  [[nodiscard]] bool accepts(const Run& run, size_t link, std::span<const Run> before) const noexcept override;
  void on_run(const Run& run, size_t link, bool relayed, Nanos now) noexcept override;
  [[nodiscard]] bool accepts_credit(unsigned block, size_t link) const noexcept override;
  void on_credit(unsigned block, size_t elements) noexcept override;
  void send_credits(Nanos now) noexcept override;
  bool send_own(Nanos now) noexcept override;
  [[nodiscard]] bool done() const noexcept override;
  [[nodiscard]] unsigned awaited() const noexcept override;
  [[nodiscard]] std::optional<unsigned> missing_from() const noexcept override { return awaited(); }
  [[nodiscard]] std::optional<Step> next_step() noexcept override { return sender_.next_step(it_); }
  // Returns true if the failure began on this rank and this rank owns a block: other ranks wait for its results.
  [[nodiscard]] bool tells_dependents(bool on_this_rank) const noexcept override { return on_this_rank && owns(); }

 private:
  [[nodiscard]] bool owns() const noexcept { return own_ != it_.blocks.blocks(); }
  // Returns whether all results of this rank's block, if it has one, are queued.
  [[nodiscard]] bool all_queued() const noexcept { return !owns() || queued_ == it_.blocks.count(own_); }
  [[nodiscard]] unsigned turn_of(unsigned rank) const noexcept;
  [[nodiscard]] bool has_room(const Run& run, size_t link, std::span<const Run> before) const noexcept;
  void begin_turns() noexcept;
  void take_contribution(const Run& run, size_t link) noexcept;
  void sum_exactly(size_t first, size_t count) noexcept;
  void add_own(size_t first, size_t count, uint8_t* sums, bool begins) noexcept;
  void queue_results(Nanos now) noexcept;
  bool queue_result(size_t count, Nanos now) noexcept;

  BlockSender sender_;
  unsigned own_ = 0;         // block that this rank owns; equal to the number of blocks if there is none
  size_t queued_ = 0;        // elements of its results that are queued for all ranks
  size_t results_left_ = 0;  // elements of results to receive
};

}  // namespace gradlane
