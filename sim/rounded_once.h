// rounded_once.h - correctly rounded sums by another method than exact_sum.h: expansions of doubles
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

namespace gradlane {

// A sum of doubles, kept as doubles that do not overlap, of increasing magnitude (Shewchuk, Discrete & Computational
// Geometry 18, 1997). No intermediate result may overflow.
class Expansion {
 public:
  void add(double value) {
    size_t kept = 0;
    for (double part : parts_) {
      if (std::abs(value) < std::abs(part)) std::swap(value, part);
      const double sum = value + part;
      const double error = part - (sum - value);
      if (error != 0) parts_[kept++] = error;
      value = sum;
    }
    parts_.resize(kept);
    if (value != 0) parts_.push_back(value);
  }

  // Returns the sum, rounded to nearest even.
  [[nodiscard]] double nearest() const {
    auto [sum, rest, below] = split();
    // A rest of half a last bit was rounded to even. The part below it may decide otherwise.
    const bool same_side = (rest < 0 && below < 0) || (rest > 0 && below > 0);
    const double other = sum + 2 * rest;
    return same_side && other - sum == 2 * rest ? other : sum;
  }

  // Returns the sum, rounded to odd.
  [[nodiscard]] double odd() const {
    const auto [sum, rest, below] = split();
    const auto bits = std::bit_cast<uint64_t>(sum);
    if (rest == 0 || bits % 2 != 0) return sum;
    return std::bit_cast<double>((rest > 0) == (sum > 0) ? bits + 1 : bits - 1);
  }

 private:
  struct Split {
    double sum = 0;
    double rest = 0;   // of the first addition that rounds
    double below = 0;  // the part after it
  };
  [[nodiscard]] Split split() const {
    Split it;
    size_t left = parts_.size();
    while (left != 0 && it.rest == 0) {
      const double part = parts_[--left];
      const double sum = it.sum + part;
      it.rest = part - (sum - it.sum);
      it.sum = sum;
    }
    if (left != 0) it.below = parts_[left - 1];
    return it;
  }

  std::vector<double> parts_;
};

// Returns the sum of the terms divided by `divisor`, rounded once. In double, `divisor` must be 1, and no sum may
// overflow.
template <class T>
T rounded_once(std::span<const T> terms, unsigned divisor) {
  Expansion sum;
  T plain = -T{0};
  for (const T term : terms) plain += term;
  const bool finite = std::ranges::all_of(terms, [](T term) { return std::isfinite(term); });
  if (std::isnan(plain) && !finite) return std::numeric_limits<T>::quiet_NaN();
  if (!finite) return plain;
  if (std::ranges::all_of(terms, [](T term) { return term == 0; })) return plain;
  for (const T term : terms) sum.add(static_cast<double>(term));
  if constexpr (std::is_same_v<T, double>) return sum.nearest() + 0.0;
  return static_cast<T>(sum.odd() / divisor);
}

}  // namespace gradlane
