// reference_elements.h - sums, minima and maxima of elements by plain arithmetic; independent of the test framework
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "collectives/operation.h"

namespace gradlane::test {

using Bytes = std::vector<uint8_t>;

// Words in this file are the bits of elements.

// A floating-point format of IEEE 754.
struct Format {
  int exponent_bits;
  int fraction_bits;
  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] uint64_t infinity() const { return ((uint64_t{1} << exponent_bits) - 1) << fraction_bits; }
  [[nodiscard]] uint64_t sign() const { return uint64_t{1} << (exponent_bits + fraction_bits); }
};
inline constexpr Format kFp16 = {5, 10};
inline constexpr Format kBf16 = {8, 7};

inline double value_of(const Format& format, uint64_t word) {
  const uint64_t magnitude = word & (format.sign() - 1);
  const auto field = static_cast<int>(magnitude >> format.fraction_bits);
  const auto fraction = static_cast<double>(magnitude & ((uint64_t{1} << format.fraction_bits) - 1));
  double value;
  if (magnitude > format.infinity()) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (magnitude == format.infinity()) {
    value = std::numeric_limits<double>::infinity();
  } else if (field == 0) {
    value = std::ldexp(fraction, 1 - format.bias() - format.fraction_bits);
  } else {
    value = std::ldexp(1 + std::ldexp(fraction, -format.fraction_bits), field - format.bias());
  }
  return (word & format.sign()) != 0 ? -value : value;
}

// Returns the word of `value`, rounded to nearest even.
inline uint64_t word_of(const Format& format, double value) {
  if (std::isnan(value)) return format.infinity() | uint64_t{1} << (format.fraction_bits - 1);
  const uint64_t sign = std::signbit(value) ? format.sign() : 0;
  if (value == 0) return sign;
  if (std::isinf(value)) return sign | format.infinity();
  const int least = 1 - format.bias();
  const int exponent = std::max(std::ilogb(value), least);
  // The leading bit of a normal number adds 1 to the exponent's field, and so does a carry.
  const double steps = std::nearbyint(std::ldexp(std::fabs(value), format.fraction_bits - exponent));
  const uint64_t word =
      (static_cast<uint64_t>(exponent - least) << format.fraction_bits) + static_cast<uint64_t>(steps);
  return sign | std::min(word, format.infinity());
}

inline constexpr Format kFp32 = {8, 23};
inline constexpr Format kFp64 = {11, 52};

inline const Format& half_format(ElementType type) { return type == ElementType::kFloat16 ? kFp16 : kBf16; }

inline const Format& format_of(ElementType type) {
  if (type == ElementType::kFloat64) return kFp64;
  return type == ElementType::kFloat32 ? kFp32 : half_format(type);
}

inline bool is_half(ElementType type) { return type == ElementType::kFloat16 || type == ElementType::kBfloat16; }

inline uint64_t word_at(const Bytes& bytes, size_t width, size_t i) {
  uint64_t word = 0;
  std::memcpy(&word, bytes.data() + i * width, width);
  return word;
}

inline void set_word(Bytes& bytes, size_t width, size_t i, uint64_t word) {
  std::memcpy(bytes.data() + i * width, &word, width);
}

inline double double_of(uint64_t word) { return std::bit_cast<double>(word); }
inline uint64_t word_of(double value) {
  return std::isnan(value) ? 0x7ff8000000000000 : std::bit_cast<uint64_t>(value);
}

// Returns the sum of two elements. It works for all types but fp32.
inline uint64_t reference_sum(ElementType type, uint64_t a, uint64_t b) {
  if (type == ElementType::kFloat64) return word_of(double_of(a) + double_of(b));
  if (is_half(type)) {
    const Format& format = half_format(type);
    return word_of(format, value_of(format, a) + value_of(format, b));
  }
  uint64_t sum = 0;
  uint64_t carry = 0;
  for (size_t bit = 0; bit < 8 * element_bytes(type); ++bit) {
    const uint64_t ones = (a >> bit & 1) + (b >> bit & 1) + carry;
    sum |= (ones & 1) << bit;
    carry = ones >> 1;
  }
  return sum;
}

// Returns the smaller of two elements of any type, or the larger one with `larger`.
inline uint64_t reference_pick(ElementType type, bool larger, uint64_t a, uint64_t b) {
  if (is_floating(type)) {
    const Format format = format_of(type);
    // Values are doubles, so an fp64 element is its own value.
    const auto value = [&](uint64_t word) {
      return type == ElementType::kFloat64 ? double_of(word) : value_of(format, word);
    };
    const double first = value(a);
    const double second = value(b);
    if (std::isnan(first) || std::isnan(second)) return format.infinity() | uint64_t{1} << (format.fraction_bits - 1);
    if (first == second) return std::signbit(first) == larger ? b : a;  // zeros have two signs
    return (first > second) == larger ? a : b;
  }
  const size_t bits = 8 * element_bytes(type);
  const bool negative_a = type != ElementType::kBytes && (a >> (bits - 1) & 1) != 0;
  const bool negative_b = type != ElementType::kBytes && (b >> (bits - 1) & 1) != 0;
  const bool more = negative_a != negative_b ? negative_b : a > b;
  return more == larger ? a : b;
}

// Returns the value with which an fp32 element counts in a sum.
inline float contribution(const Codec& codec, float f) {
  const Form layout = codec.row().layout;
  if (layout != Form::kLattice && layout != Form::kTagged) return f;
  const int exponent = codec.id() == CodecId::kFixed ? 1 - static_cast<int>(codec.bits()) : -15;
  if (!(std::fabs(f) < std::ldexp(1.0F, 23 + exponent))) return f;
  return std::ldexp(std::nearbyint(std::ldexp(f, -exponent)), exponent);
}

}  // namespace gradlane::test
