// block_sender.h - own elements on their way to the ranks that take them, in turn (packet path)
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/time.h"
#include "collectives/exchange/algorithm.h"

namespace gradlane {

// Each block goes to one rank, which gets about a packet at a time. The rank before this one is the first, then that
// before it, and so on: so no two ranks send to the same one at a time, and elements arrive in the order in which an
// owner adds them.
class BlockSender {
 public:
  // `ranks`: as many as there may be blocks.
  explicit BlockSender(unsigned ranks) : sent_(ranks), limit_(ranks) {}

  // Nothing is to be sent. Runs do not cross multiples of the window.
  void begin(const Running& it) noexcept;
  // So many elements of a block, of which those before `limit` may go now.
  void add(unsigned block, size_t elements, size_t limit) noexcept {
    left_ += elements;
    limit_[block] = limit;
  }
  void raise(unsigned block, size_t limit) noexcept { limit_[block] = std::max(limit_[block], limit); }

  // Elements that an owner takes before it has granted any.
  [[nodiscard]] size_t window() const noexcept { return window_; }
  [[nodiscard]] bool all_sent() const noexcept { return left_ == 0; }
  [[nodiscard]] bool has_sent(unsigned block) const noexcept { return sent_[block] == limit_[block]; }

  // Sends what may go, to so many ranks in turn. What stays on this rank is copied.
  void send(Running& it, const EngineParts& parts, unsigned receivers, Nanos now) noexcept;
  // Which run could go now.
  [[nodiscard]] std::optional<Step> next_step(const Running& it) const noexcept;

 private:
  size_t send_piece(Running& it, const EngineParts& parts, unsigned block, Nanos now) noexcept;

  size_t window_ = 1;          // elements that one rank may send ahead of its turn
  size_t left_ = 0;            // elements of this rank, to others
  std::vector<size_t> sent_;   // by block: elements sent to its rank,
  std::vector<size_t> limit_;  //   which takes them up to here
  unsigned next_ = 1;          // who is sent to next: so many ranks before this one
};

}  // namespace gradlane
