// turns.h - adding the contributions of all ranks to a block in one order, whatever order they come in
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/exchange/coder.h"
#include "collectives/wire.h"

namespace gradlane {

// What the owner of a block does in its name: every rank's elements, its own among them, are added at their turn, so
// that a sum has the same bits in every run. (Sums of floats depend on the order. `fixed` adds exactly, but for what it
// escapes.) Turn 0 begins a sum, each turn adds to it, and behind the last one it is done.
//
// Elements of the block are merged from the front: turn t has merged those before merged(t), and merged(0) >= merged(1)
// >= ... >= done(). A run whose turn it is goes right into the sums. One that comes earlier is kept, as elements. So
// that there is a place for it, each rank sends only as far as its limit: `window` beyond what it has merged, and
// kSumBytes beyond what is done, at most. The limit is told in grants, and begins at `window`, which all ranks know.
//
// Nothing waits for ever: the elements at done() are below every limit, so all that have started send them; turn 0
// needs no other to be merged, and each turn only the one before.
class Turns {
 public:
  static constexpr size_t kSumBytes = size_t{512} << 10;  // of sums that are begun and not done

  // Elements of one rank that may wait for their turn, in bytes: a power of two. Runs do not cross its multiples.
  [[nodiscard]] static size_t window(unsigned world) noexcept;

  // Memory for so many ranks; none for less than two. `small`: for blocks of which all ranks' elements together, and
  // a granule for each rank, are kSmallBytes at most.
  static constexpr size_t kSmallBytes = size_t{16} << 10;
  Turns(unsigned world, bool small);

  // A block of so many elements, of which this rank's turn is `own`. `coder` is for contributions, `plain` for elements
  // as they are.
  void begin(size_t elements, unsigned own, const Coder& coder, const Coder& plain) noexcept;

  [[nodiscard]] size_t done() const noexcept { return done_; }
  [[nodiscard]] bool complete() const noexcept { return done_ == elements_; }
  // Who has sent least, among others: whom the sums wait for.
  [[nodiscard]] unsigned last() const noexcept;

  // Whether a run of turn `turn` has a place.
  [[nodiscard]] bool has_place(unsigned turn, size_t first, size_t count) const noexcept;

  // Such a run, its block valid. Then own elements and what was kept are merged as far as that goes: by
  // own(first, count, sums, begins), which adds this rank's elements or, if `begins`, puts them there; and done(first,
  // count, sums) gets sums that are complete.
  template <typename Own, typename Done>
  void take(unsigned turn, size_t first, size_t count, std::span<const uint8_t> block, Own own, Done done) noexcept {
    heard_[turn] = 1;
    if (first == merged_[turn] && first + count <= open_to(turn)) {
      uint8_t* const sums = sums_at(first);
      (void)(turn == 0 ? coder_.decode(block, sums, count) : coder_.add(block, sums, count));
      merged_[turn] = first + count;
    } else {
      keep(turn, first, count, block);
    }
    merge(turn, own, done);
  }

  // At the start: own elements may be first.
  template <typename Own, typename Done>
  void start(Own own, Done done) noexcept {
    merge(0, own, done);
  }

  // The limit of a turn if it is time to tell it, else 0. `told` notes that it has been.
  [[nodiscard]] size_t grant(unsigned turn) const noexcept;
  void told(unsigned turn, size_t limit) noexcept { told_[turn] = limit; }
  void again() noexcept { moved_ = true; }
  // Something has been merged since the last call, or again() was called.
  [[nodiscard]] bool moved() noexcept {
    const bool moved = moved_;
    moved_ = false;
    return moved;
  }

 private:
  [[nodiscard]] size_t open_to(unsigned turn) const noexcept {
    return turn == 0 ? std::min(done_ + sum_elements_, elements_) : merged_[turn - 1];
  }
  [[nodiscard]] uint8_t* sums_at(size_t element) noexcept {
    return sums_.data() + element % sum_elements_ * element_bytes_;
  }
  // From here to `end` at most, not across a multiple of the window.
  [[nodiscard]] size_t piece(size_t first, size_t end) const noexcept {
    return std::min(end, first - first % window_ + window_) - first;
  }
  [[nodiscard]] size_t mark_of(size_t element) const noexcept { return element % window_ / granule_; }
  [[nodiscard]] bool marked(unsigned turn, size_t mark) const noexcept {
    return (marks_[turn * mark_words_ + mark / 64] >> (mark % 64) & 1) != 0;
  }
  void keep(unsigned turn, size_t first, size_t count, std::span<const uint8_t> block) noexcept;
  [[nodiscard]] bool add_kept(unsigned turn) noexcept;

  template <typename Own, typename Done>
  void merge(unsigned turn, Own own, Done done) noexcept {
    moved_ = true;
    for (bool again = true; again;) {
      for (bool forth = true; forth && turn < turns_; ++turn) {
        const bool first = turn == 0;
        if (turn != own_) {
          // The one that has just taken a run may have others kept behind it.
          forth = add_kept(turn) || merged_[turn] != (turn + 1 < turns_ ? merged_[turn + 1] : done_);
          continue;
        }
        const size_t end = open_to(turn);
        forth = merged_[turn] < end;
        while (merged_[turn] < end) {
          const size_t count = piece(merged_[turn], end);
          own(merged_[turn], count, sums_at(merged_[turn]), first);
          merged_[turn] += count;
        }
      }
      const size_t end = merged_[turns_ - 1];
      again = done_ < end;
      while (done_ < end) {
        const size_t count = piece(done_, end);
        done(done_, count, sums_at(done_));
        done_ += count;
      }
      turn = 0;  // whose limit has moved
    }
  }

  unsigned turns_;
  size_t window_bytes_;
  size_t place_bytes_ = 0;  // of each turn, for what is kept: a window, or all of a block that is shorter
  size_t mark_words_ = 0;   // of each turn
  std::vector<uint8_t> sums_;
  std::vector<uint8_t> kept_;    // elements; `place_bytes_` of each turn
  std::vector<uint64_t> marks_;  // bit of a granule: it is kept
  std::vector<size_t> merged_;   // by turn
  std::vector<size_t> told_;     // the limit, as the other side knows it
  std::vector<uint8_t> heard_;   // something has come: it has started, and can be told

  unsigned own_ = 0;
  size_t elements_ = 0;
  size_t done_ = 0;
  size_t granule_ = 1;
  size_t element_bytes_ = 1;
  size_t window_ = 1;  // elements
  size_t sum_elements_ = 1;
  bool moved_ = false;
  Coder coder_;
  Coder plain_;
};

}  // namespace gradlane
