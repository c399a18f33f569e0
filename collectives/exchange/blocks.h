// blocks.h - the division of an operation's tensor into blocks, and of blocks into granules
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gradlane {

// The division of a tensor into blocks. Either all blocks have the same number of elements, and may lie apart in memory
// (for example reduce-scatter and all-gather, one block per rank). Or the granules of the tensor are spread over the
// blocks as evenly as possible (all-reduce; broadcast, with one block). Then the last granule of the tensor may be a
// partial one.
class Blocks {
 public:
  Blocks() = default;

  // Makes blocks of equal length. Their first elements are `stride` elements apart.
  static Blocks equal(unsigned blocks, size_t elements_each, size_t granule, size_t stride) noexcept {
    return {blocks, elements_each * blocks, granule, elements_each, stride};
  }
  static Blocks spread(unsigned blocks, size_t elements, size_t granule) noexcept {
    return {blocks, elements, granule, 0, 0};
  }

  [[nodiscard]] unsigned blocks() const noexcept { return blocks_; }
  [[nodiscard]] size_t elements() const noexcept { return elements_; }
  [[nodiscard]] size_t granule() const noexcept { return granule_; }

  // Returns the first element of a block.
  [[nodiscard]] size_t offset(unsigned block) const noexcept {
    if (each_ != 0) return block * stride_;
    return std::min(elements_, granules_ * block / blocks_ * granule_);
  }
  [[nodiscard]] size_t count(unsigned block) const noexcept {
    return each_ != 0 ? each_ : offset(block + 1) - offset(block);
  }

  // The position of an element that is counted over all blocks. `offset` is its offset from the first element in
  // memory, gaps included. `left` is the number of elements from there on that lie without a gap.
  struct Place {
    size_t offset;
    size_t left;
  };
  [[nodiscard]] Place place(size_t element) const noexcept {
    if (each_ == 0) return {element, elements_ - element};  // blocks that are spread lie side by side
    return {element / each_ * stride_ + element % each_, each_ - element % each_};
  }

  // Returns the number of granules of the longest block.
  [[nodiscard]] size_t max_block_granules() const noexcept {
    return each_ != 0 ? (each_ + granule_ - 1) / granule_ : (granules_ + blocks_ - 1) / blocks_;
  }

 private:
  Blocks(unsigned blocks, size_t elements, size_t granule, size_t each, size_t stride) noexcept
      : blocks_(blocks), elements_(elements), granule_(granule), each_(each), stride_(stride) {
    granules_ = (elements + granule - 1) / granule;
  }

  unsigned blocks_ = 1;
  size_t elements_ = 0;
  size_t granule_ = 1;
  size_t each_ = 0;  // elements of each block; 0: the granules are spread
  size_t stride_ = 0;
  size_t granules_ = 0;
};

}  // namespace gradlane
