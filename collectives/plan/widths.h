// widths.h - a width for each layer of a gradient: the fewest bytes within an error (pure)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gradlane {

// What one layer costs with one codec.
struct WidthCost {
  double bytes = 0;
  double error = 0;  // the sum of squares of what elements are off by; any measure that adds up over layers will do
};

// What blocks of `fixed:b` are for a layer, whatever b is, from one look at it: for each b how many groups have how
// many planes, and how much lies below each power of two. Nothing is encoded.
class WidthHistogram {
 public:
  // Steps are 2^(1-b). Beyond what names of codecs say, for steps that are relative to a layer.
  static constexpr int kLeastBits = -15;
  static constexpr int kMostBits = 48;

  // A run, which begins a group, as a block does.
  void add(std::span<const float> floats) noexcept;

  [[nodiscard]] uint64_t elements() const noexcept { return elements_; }
  [[nodiscard]] double squares() const noexcept;                     // of what is finite
  [[nodiscard]] float largest() const noexcept { return largest_; }  // of the finite magnitudes

  // Bytes are those of a block of all that was added; of groups with floats that do not fit 16 bits, about those. The
  // error is x^2 of each element that is rounded to 0, none of those from 2^23 steps on, which are not rounded, and
  // step^2 / 12 of all others, as if what is rounded away was spread evenly. b beyond the ends is taken as the end.
  [[nodiscard]] WidthCost fixed(int bits) const noexcept;

 private:
  static constexpr size_t kSteps = kMostBits - kLeastBits + 1;
  static constexpr unsigned kWide = 17;  // stands for the planes of groups with raw floats
  static constexpr size_t kExponents = 256;

  void add_group(std::span<const float> floats) noexcept;

  uint64_t elements_ = 0;
  uint64_t groups_ = 0;
  float largest_ = 0;
  std::array<std::array<uint64_t, kWide + 1>, kSteps> widths_{};  // groups: by b, by planes
  // Of the magnitudes above 2^(e - 127), up to twice that: by e.
  std::array<uint64_t, kExponents> counts_{};
  std::array<double, kExponents> squares_{};
};

// A choice for each layer, by its place in the layer's list, and what they cost together.
struct WidthPlan {
  std::vector<size_t> choices;
  WidthCost cost;
};

// What it costs if all layers take that one.
[[nodiscard]] WidthCost uniform_cost(std::span<const std::vector<WidthCost>> layers, size_t uniform);

// The plan of the fewest bytes whose error is at most that of `uniform` for all layers, which must be a place in each
// list; sums may round by 2^-40. Never more bytes than that takes. Costs are finite and not negative.
//
// It is the dynamic program of L-GreCo (Alimohammadi et al., MLSys 2024): layer by layer, the fewest bytes for each
// error so far. There errors are rounded up to a 10,000th of what is allowed. Here they stay as they are, and where
// there are more than kMostPlans plans after a layer, one of those with nearly the same error stays; with fewer, it is
// exact.
inline constexpr size_t kMostPlans = 1024;
[[nodiscard]] WidthPlan plan_widths(std::span<const std::vector<WidthCost>> layers, size_t uniform);

}  // namespace gradlane
