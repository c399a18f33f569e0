// loss.h - what a codec takes away from values (set-up of an operation)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec.h"

namespace gradlane {

// Of values that were looked at; those that are 0, Inf or NaN are not among them. Sums of squares, as that is what
// adds: the lost share of the norm is sqrt(lost_squares / squares).
struct Loss {
  uint64_t values = 0;
  uint64_t zeroed = 0;      // of these, became 0
  double squares = 0;       // of the values
  double lost_squares = 0;  // of value - decode(encode(value))

  void add(const Loss& other) noexcept;
  // 0 where nothing was looked at.
  [[nodiscard]] double lost_share() const noexcept;
};

// Encodes and decodes all of `in`, whose floats may lie at any address, and change meanwhile. Pure, no heap.
[[nodiscard]] Loss measure_loss(const Codec& codec, std::span<const float> in) noexcept;

}  // namespace gradlane
