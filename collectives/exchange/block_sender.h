// block_sender.h - own elements on their way to the ranks that take them, in turn (packet path)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/exchange/egress.h"
#include "collectives/exchange/poll_budget.h"
#include "collectives/exchange/running.h"
#include "collectives/exchange/turns.h"

namespace gradlane {

// Each block goes to one rank. Each of these gets about a packet at a time, from the rank before this one backwards: so
// each is sent to by another rank, and in the order in which an owner adds.
class BlockSender {
 public:
  // `ranks`: as many as there may be blocks.
  explicit BlockSender(unsigned ranks) : sent_(ranks), limit_(ranks) {}

  // Nothing is to be sent. Runs do not cross multiples of the window.
  void begin(const Running& it) noexcept {
    window_ = Turns::window(it.world) / it.coder.element_bytes();
    left_ = 0;
    next_ = 1;
    std::ranges::fill(sent_, 0);
    std::ranges::fill(limit_, 0);
  }
  // So many elements of a block, of which those before `limit` may go now.
  void add(unsigned block, size_t elements, size_t limit) noexcept {
    left_ += elements;
    limit_[block] = limit;
  }
  void raise(unsigned block, size_t limit) noexcept { limit_[block] = std::max(limit_[block], limit); }

  [[nodiscard]] size_t window() const noexcept { return window_; }
  [[nodiscard]] bool all_sent() const noexcept { return left_ == 0; }
  [[nodiscard]] bool has_sent(unsigned block) const noexcept { return sent_[block] == limit_[block]; }

  // Sends what may go, to so many ranks in turn. send_piece(block, first, count) sends some elements of a block from
  // `first` on and returns how many.
  template <typename SendPiece>
  void send(const Running& it, unsigned rank, unsigned receivers, const PollBudget& budget,
            SendPiece send_piece) noexcept {
    if (left_ == 0) return;
    const unsigned blocks = it.blocks.blocks();
    for (bool again = true; again;) {
      again = false;
      for (unsigned i = 0; i < receivers; ++i) {
        const unsigned back = 1 + (next_ - 1 + i) % receivers;
        const unsigned block = blocks == 1 ? 0 : (2 * it.world + rank - back - it.task.rotation) % it.world;
        const size_t first = sent_[block];
        if (first < limit_[block]) {
          const size_t end = std::min({limit_[block], first + it.offer, first - first % window_ + window_});
          const size_t sent = send_piece(block, first, end - first);
          sent_[block] += sent;
          left_ -= sent;
          again |= sent != 0;
        }
        if (budget.more()) {  // that is enough for one poll
          next_ = 1 + (next_ + i) % receivers;
          return;
        }
      }
    }
  }

  // Which run could go now.
  [[nodiscard]] std::optional<Step> next_step(const Running& it) const noexcept {
    if (left_ == 0) return std::nullopt;
    for (unsigned block = 0; block < it.blocks.blocks(); ++block) {
      const Step step = it.strategy->start(it.task, block);
      if (step.send && sent_[block] < limit_[block]) return step;
    }
    return std::nullopt;
  }

 private:
  size_t window_ = 1;          // elements that one rank may send ahead of its turn
  size_t left_ = 0;            // elements of this rank, to others
  std::vector<size_t> sent_;   // by block: elements sent to its rank,
  std::vector<size_t> limit_;  //   which takes them up to here
  unsigned next_ = 1;          // which one is sent to next: so many back
};

}  // namespace gradlane
