// pending_bitmap.h - one bit per granule for elements that wait in the tensor to be sent
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradlane {

class PendingBitmap {
 public:
  // Allocates one bit for each of `bits` granules.
  explicit PendingBitmap(size_t bits) : words_((bits + 63) / 64) {}

  // Clears all marks for a tensor of `blocks` blocks of up to `stride` granules.
  void begin(unsigned blocks, size_t stride) noexcept {
    if (marked_ != 0) std::fill(words_.begin(), words_.begin() + static_cast<std::ptrdiff_t>(used_), 0);
    stride_ = stride;
    used_ = (blocks * stride + 63) / 64;
    cursor_ = 0;
    marked_ = 0;
  }

  [[nodiscard]] bool empty() const noexcept { return marked_ == 0; }

  // Returns the index of a granule of a block among all granules.
  [[nodiscard]] size_t place(unsigned block, size_t granule) const noexcept { return block * stride_ + granule; }

  // mark() and clear() change granules `first` to `first + count - 1` of a block.
  void mark(unsigned block, size_t first, size_t count) noexcept {
    change(place(block, first), count, [this](uint64_t& word, uint64_t mask) {
      marked_ += static_cast<size_t>(std::popcount(mask & ~word));
      word |= mask;
    });
  }
  void clear(unsigned block, size_t first, size_t count) noexcept {
    change(place(block, first), count, [this](uint64_t& word, uint64_t mask) {
      marked_ -= static_cast<size_t>(std::popcount(mask & word));
      word &= ~mask;
    });
  }

  struct Run {
    unsigned block;
    size_t first;  // in granules, like `count`
    size_t count;
  };

  // Returns marked granules in a row, at most `most`, of one block. The search begins where the previous call found
  // granules, and wraps around at the end. Call it only if empty() is false.
  [[nodiscard]] Run next(size_t most) noexcept {
    while (words_[cursor_ / 64] >> (cursor_ % 64) == 0) {
      cursor_ = (cursor_ / 64 + 1) * 64;
      if (cursor_ / 64 >= used_) cursor_ = 0;
    }
    cursor_ += static_cast<size_t>(std::countr_zero(words_[cursor_ / 64] >> (cursor_ % 64)));
    const size_t block = cursor_ / stride_;
    const size_t end = std::min(cursor_ + most, (block + 1) * stride_);
    size_t last = cursor_;
    while (last < end) {
      const size_t ones = static_cast<size_t>(std::countr_one(words_[last / 64] >> (last % 64)));
      if (ones == 0) break;
      last += ones;
      if (last % 64 != 0) break;
    }
    return {static_cast<unsigned>(block), cursor_ - block * stride_, std::min(last, end) - cursor_};
  }

 private:
  template <typename Change>
  void change(size_t bit, size_t count, Change apply) noexcept {
    while (count != 0) {
      const size_t in_word = std::min(count, 64 - bit % 64);
      const uint64_t ones = in_word == 64 ? ~uint64_t{0} : (uint64_t{1} << in_word) - 1;
      apply(words_[bit / 64], ones << bit % 64);
      bit += in_word;
      count -= in_word;
    }
  }

  std::vector<uint64_t> words_;
  size_t used_ = 0;  // number of words in use
  size_t stride_ = 1;
  size_t cursor_ = 0;
  size_t marked_ = 0;
};

}  // namespace gradlane
