// loss.h - measurement of what a codec loses of given values (set-up of an operation)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec.h"

namespace gradlane {

// The loss of values that are finite and not 0. Sums of squares are kept because they can be added. The lost share of
// the norm is sqrt(lost_squares / squares).
struct Loss {
  uint64_t values = 0;
  uint64_t zeroed = 0;      // number of values that became 0
  double squares = 0;       // sum of squares of the values
  double lost_squares = 0;  // sum of squares of value - decode(encode(value))

  void add(const Loss& other) noexcept;
  // Returns the lost share of the norm; 0 if there are no values.
  [[nodiscard]] double lost_share() const noexcept;
};

// Encodes and decodes all of `in`, and returns what is lost. The floats may lie at any address, and may change
// meanwhile. Pure, no heap.
[[nodiscard]] Loss measure_loss(const Codec& codec, std::span<const float> in) noexcept;

}  // namespace gradlane
