// widths.h - a bit width for each layer of a gradient: the fewest bytes within an error (pure)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gradlane {

// The cost of one layer with one codec.
struct WidthCost {
  double bytes = 0;
  double error = 0;  // sum of the squared errors of its elements; any measure that adds up over layers works
};

// The figures of a layer from which the cost of `fixed:b` follows for any b, collected in one pass. It counts, for each
// b, the groups by their number of bit planes, and it counts magnitudes by power of two. Nothing is encoded.
class WidthHistogram {
 public:
  // Steps are 2^(1-b). The range of b is larger than in names of codecs, for steps that are relative to a layer.
  static constexpr int kLeastBits = -15;
  static constexpr int kMostBits = 48;

  // Adds a run of floats, which begins a new group, as a block does.
  void add(std::span<const float> floats) noexcept;

  [[nodiscard]] uint64_t elements() const noexcept { return elements_; }
  [[nodiscard]] double squares() const noexcept;                     // sum over the finite values
  [[nodiscard]] float largest() const noexcept { return largest_; }  // largest finite magnitude

  // Returns the bytes and the error of `fixed:bits`. The bytes are those of one block of all floats that were added.
  // They are approximate for groups with floats that do not fit into 16 bits. An element x that is rounded to 0 has an
  // error of x^2. Elements from 2^23 steps on are not rounded, and have none. All others have step^2 / 12, as if
  // rounding errors were spread evenly. If `bits` is outside of the range, the end of the range counts.
  [[nodiscard]] WidthCost fixed(int bits) const noexcept;

 private:
  static constexpr size_t kSteps = kMostBits - kLeastBits + 1;
  static constexpr unsigned kWide = 17;  // counts as the number of planes of a group with raw floats
  static constexpr size_t kExponents = 256;

  void add_group(std::span<const float> floats) noexcept;

  uint64_t elements_ = 0;
  uint64_t groups_ = 0;
  float largest_ = 0;
  std::array<std::array<uint64_t, kWide + 1>, kSteps> widths_{};  // number of groups: by b, by planes
  // Number, and sum of squares, of the magnitudes above 2^(e - 127) and up to twice that: by e.
  std::array<uint64_t, kExponents> counts_{};
  std::array<double, kExponents> squares_{};
};

// A choice for each layer, as an index into the layer's list, and the total cost.
struct WidthPlan {
  std::vector<size_t> choices;
  WidthCost cost;
};

// Returns the cost if all layers take the choice `uniform`.
[[nodiscard]] WidthCost uniform_cost(std::span<const std::vector<WidthCost>> layers, size_t uniform);

// Returns the plan with the fewest bytes whose error is at most that of `uniform` for all layers. Sums may round by
// 2^-40. `uniform` must be an index into each list. The plan never has more bytes than `uniform`. Costs are finite and
// not negative.
//
// It is the dynamic program of L-GreCo (Alimohammadi et al., MLSys 2024), which goes layer by layer and keeps the
// fewest bytes for each error so far. L-GreCo rounds errors up to a 10,000th of the limit. Here they are not rounded.
// If more than kMostPlans plans are left after a layer, only one of those with nearly the same error is kept. If that
// never happens, the result is exact.
inline constexpr size_t kMostPlans = 1024;
[[nodiscard]] WidthPlan plan_widths(std::span<const std::vector<WidthCost>> layers, size_t uniform);

}  // namespace gradlane
