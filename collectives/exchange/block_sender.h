// block_sender.h - sending of own elements to the ranks that take them, in turn (packet path)
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/time.h"
#include "collectives/exchange/algorithm.h"

namespace gradlane {

// Sends each block to one rank, about a packet at a time. It begins with the predecessor and goes backwards through the
// ranks. So no two ranks send to the same rank at a time. Elements also arrive in the order in which an owner adds
// them.
class BlockSender {
 public:
  // `ranks`: the largest number of blocks.
  explicit BlockSender(unsigned ranks) : sent_(ranks), limit_(ranks) {}

  // Begins a stage in which nothing is to be sent yet; add() adds blocks. Runs will not cross multiples of window().
  void begin(const OperationState& it) noexcept;
  // Adds `elements` elements of a block. Elements before `limit` may be sent now.
  void add(unsigned block, size_t elements, size_t limit) noexcept {
    left_ += elements;
    limit_[block] = limit;
  }
  void raise(unsigned block, size_t limit) noexcept { limit_[block] = std::max(limit_[block], limit); }

  // Returns how many elements of a block an owner accepts before it has announced a credit.
  [[nodiscard]] size_t window() const noexcept { return window_; }
  [[nodiscard]] bool all_sent() const noexcept { return left_ == 0; }
  [[nodiscard]] bool has_sent(unsigned block) const noexcept { return sent_[block] == limit_[block]; }

  // Sends what may be sent now, to `receivers` ranks in turn. Copies elements that stay on this rank.
  void send(OperationState& it, const EngineParts& parts, unsigned receivers, Nanos now) noexcept;
  // Returns the step of a run that could be sent now; none if there is no such run.
  [[nodiscard]] std::optional<Step> next_step(const OperationState& it) const noexcept;

 private:
  size_t send_piece(OperationState& it, const EngineParts& parts, unsigned block, Nanos now) noexcept;

  size_t window_ = 1;          // elements that one rank may send ahead of its turn
  size_t left_ = 0;            // own elements that are still to be sent or copied
  std::vector<size_t> sent_;   // by block: elements sent
  std::vector<size_t> limit_;  // by block: elements before this one may be sent now
  unsigned next_ = 1;          // next receiver: its distance from this rank, counted backwards
};

}  // namespace gradlane
