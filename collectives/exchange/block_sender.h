// block_sender.h - own elements on their way to the ranks that take them, in turn (packet path)
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/time.h"
#include "collectives/exchange/algorithm.h"

namespace gradlane {

// Sends each block to one rank, about a packet at a time. It begins with the predecessor and goes backwards round the
// ranks: so no two ranks send to the same rank at a time, and elements arrive in the order in which an owner adds them.
class BlockSender {
 public:
  // `ranks`: as many as there may be blocks.
  explicit BlockSender(unsigned ranks) : sent_(ranks), limit_(ranks) {}

  // Nothing is to be sent. Runs do not cross multiples of the window.
  void begin(const Running& it) noexcept;
  // Adds `elements` elements of a block, of which those before `limit` may be sent now.
  void add(unsigned block, size_t elements, size_t limit) noexcept {
    left_ += elements;
    limit_[block] = limit;
  }
  void raise(unsigned block, size_t limit) noexcept { limit_[block] = std::max(limit_[block], limit); }

  // Elements that an owner takes before it has granted any.
  [[nodiscard]] size_t window() const noexcept { return window_; }
  [[nodiscard]] bool all_sent() const noexcept { return left_ == 0; }
  [[nodiscard]] bool has_sent(unsigned block) const noexcept { return sent_[block] == limit_[block]; }

  // Sends what may go now, to `receivers` ranks in turn. Elements that stay on this rank are copied.
  void send(Running& it, const EngineParts& parts, unsigned receivers, Nanos now) noexcept;
  // Which run could go now.
  [[nodiscard]] std::optional<Step> next_step(const Running& it) const noexcept;

 private:
  size_t send_piece(Running& it, const EngineParts& parts, unsigned block, Nanos now) noexcept;

  size_t window_ = 1;          // elements that one rank may send ahead of its turn
  size_t left_ = 0;            // elements of this rank, to others
  std::vector<size_t> sent_;   // by block: elements sent
  std::vector<size_t> limit_;  // by block: elements that its rank takes so far
  unsigned next_ = 1;          // who is sent to next: so many ranks before this one
};

}  // namespace gradlane
