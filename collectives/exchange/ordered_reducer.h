// ordered_reducer.h - addition of all ranks' contributions to a block, in a fixed order whatever order they arrive in
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/exchange/coder.h"
#include "collectives/wire.h"

namespace gradlane {

// The addition of a block by its owner. The elements of each rank, including the owner, are added at its turn. So a sum
// has the same bits in every run, although sums of floats depend on the order. (`fixed` adds exactly, except for values
// that it escapes.) Turn 0 begins a sum, each turn adds to it, and after the last turn the sum is done.
//
// Elements of the block are merged from the front. Turn t has merged those before merged(t), and merged(0) >= merged(1)
// >= ... >= done(). A run whose turn it is goes right into the sums. A run that arrives earlier is decoded and kept.
// Each rank sends only up to its limit, so that there is a place for every run. The limit is at most `window` beyond
// what the turn has merged, and at most kSumBytes beyond done(). Credits (Phase::kCredit) announce the limit to the
// rank. It begins at `window`, which all ranks know.
//
// A coder that rounds once (Coder::rounds_once) needs the contributions of all ranks at the same time. Then all runs
// are kept, turn t has arrived without a gap up to merged(t), and the limit is `window` beyond done().
//
// Nothing waits forever. The elements at done() are below every limit, so all ranks that have started send them. Turn 0
// does not wait for another turn, and each other turn waits only for the one before.
class OrderedReducer {
 public:
  static constexpr size_t kSumBytes = size_t{512} << 10;  // bytes of sums that have begun and are not done

  // Returns how many bytes of one rank's elements may wait for their turn: a power of two. Runs do not cross multiples
  // of it.
  [[nodiscard]] static size_t window(unsigned world) noexcept;

  // The constructor allocates memory for `world` ranks, and none for fewer than two. `small`: the memory is only for
  // small blocks, of which the elements of all ranks together have at most kSmallBytes, plus one granule for each rank.
  static constexpr size_t kSmallBytes = size_t{16} << 10;
  OrderedReducer(unsigned world, bool small);

  // Begins a block of `elements` elements in which this rank's turn is `own`. `coder` is for contributions, `plain` for
  // elements that are not encoded.
  void begin(size_t elements, unsigned own, const Coder& coder, const Coder& plain) noexcept;

  [[nodiscard]] size_t done() const noexcept { return done_; }
  [[nodiscard]] bool complete() const noexcept { return done_ == elements_; }
  // Returns the turn of another rank that has merged least, which is the one that the sums wait for.
  [[nodiscard]] unsigned last() const noexcept;

  // Returns whether there is a place for a run of turn `turn`.
  [[nodiscard]] bool has_place(unsigned turn, size_t first, size_t count) const noexcept;

  // Takes a run that has a place and a valid block. Then merges own elements and kept runs as far as possible. For this
  // rank's elements it calls own(first, count, sums, begins), which adds them or, if `begins`, writes them. It passes
  // complete sums to done(first, count, sums). If the coder rounds once, it calls neither, but gathered(first, count)
  // for elements of which kept() has all contributions of other ranks.
  template <typename Own, typename Done, typename Gathered>
  void take(unsigned turn, size_t first, size_t count, std::span<const uint8_t> block, Own own, Done done,
            Gathered gathered) noexcept {
    heard_[turn] = 1;
    if (gathers()) {
      keep(turn, first, count, block);
      while (merged_[turn] < elements_ && marked(turn, mark_of(merged_[turn]))) advance(turn);
      gather(gathered);
      return;
    }
    if (first == merged_[turn] && first + count <= open_to(turn)) {
      uint8_t* const sums = sums_at(first);
      (void)(turn == 0 ? coder_.decode(block, sums, count) : coder_.add(block, sums, count));
      merged_[turn] = first + count;
    } else {
      keep(turn, first, count, block);
    }
    merge(turn, own, done);
  }

  // Merges this rank's own elements if they have the first turn, because no run has to arrive for that.
  template <typename Own, typename Done>
  void start(Own own, Done done) noexcept {
    if (!gathers()) merge(0, own, done);
  }

  // Returns the kept elements of a turn from `first` on, for gathered().
  [[nodiscard]] const uint8_t* kept(unsigned turn, size_t first) const noexcept {
    return kept_.data() + turn * place_bytes_ + first % window_ * element_bytes_;
  }

  // Returns the limit of a turn if it is time to announce it, else 0. told() notes that it was announced.
  [[nodiscard]] size_t credit(unsigned turn) const noexcept;
  void told(unsigned turn, size_t limit) noexcept { told_[turn] = limit; }
  void again() noexcept { moved_ = true; }
  // Returns whether something has been merged, or again() was called, after the previous call of moved().
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
  // Returns the number of elements from `first` on that lie before `end` and before the next multiple of the window.
  [[nodiscard]] size_t piece(size_t first, size_t end) const noexcept {
    return std::min(end, first - first % window_ + window_) - first;
  }
  [[nodiscard]] size_t mark_of(size_t element) const noexcept { return element % window_ / granule_; }
  [[nodiscard]] bool marked(unsigned turn, size_t mark) const noexcept {
    return (marks_[turn * mark_words_ + mark / 64] >> (mark % 64) & 1) != 0;
  }
  [[nodiscard]] bool gathers() const noexcept { return coder_.rounds_once(); }
  // Clears the mark of the granule at merged(turn), and counts it as arrived.
  void advance(unsigned turn) noexcept {
    const size_t mark = mark_of(merged_[turn]);
    marks_[turn * mark_words_ + mark / 64] &= ~(uint64_t{1} << (mark % 64));
    merged_[turn] = std::min(merged_[turn] + granule_, elements_);
  }
  // Calls gathered() for elements that have arrived from all other ranks.
  template <typename Gathered>
  void gather(Gathered gathered) noexcept {
    size_t end = elements_;
    for (unsigned turn = 0; turn < turns_; ++turn) end = turn == own_ ? end : std::min(end, merged_[turn]);
    if (done_ == end) return;
    moved_ = true;
    while (done_ < end) {
      const size_t count = piece(done_, end);
      gathered(done_, count);
      done_ += count;
    }
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
          // This turn may have just merged a run, and kept runs may follow it. The next turn can go on if this one has
          // merged more than it.
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
      turn = 0;  // done_ has advanced, and with it the limit of turn 0
    }
  }

  unsigned turns_;
  size_t window_bytes_;
  size_t place_bytes_ = 0;  // bytes per turn for kept elements: a window, or a whole block if that is shorter
  size_t mark_words_ = 0;   // words of marks per turn
  std::vector<uint8_t> sums_;
  std::vector<uint8_t> kept_;    // kept elements; `place_bytes_` bytes per turn
  std::vector<uint64_t> marks_;  // one bit per granule: it is kept
  std::vector<size_t> merged_;   // elements merged, by turn
  std::vector<size_t> told_;     // limit that was announced, by turn
  // 1 if a run of the turn has arrived: its rank has then started, and can receive credits
  std::vector<uint8_t> heard_;

  unsigned own_ = 0;
  size_t elements_ = 0;
  size_t done_ = 0;
  size_t granule_ = 1;
  size_t element_bytes_ = 1;
  size_t window_ = 1;  // in elements
  size_t sum_elements_ = 1;
  bool moved_ = false;
  Coder coder_;
  Coder plain_;
};

}  // namespace gradlane
