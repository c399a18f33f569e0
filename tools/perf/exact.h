// exact.h - sums of a codec that adds without rounding, computed in one process
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compress/codec.h"
#include "sim/tensors.h"

namespace gradlane {

// Computes the sums that a codec must give, whatever the strategy: decode(encode()) of each rank's contribution, added
// up. It is not for codecs that make contributions with random numbers, because these are not known here. If only the
// result depends on random numbers, as in a tied vote, every result that can come out is right.
class ExactSums {
 public:
  // Returns nothing if the sums cannot be known. `floats`: number of values of each rank. `largest`: the largest
  // magnitude of all inputs.
  [[nodiscard]] static std::optional<ExactSums> of(const Codec& codec, const SimInputs& inputs, unsigned ranks,
                                                   size_t floats, double largest);

  // Counts elements of a result that are wrong. `result` has elements first, first + 1, ... of the tensor, at most
  // SimInputs::kMaxRun.
  [[nodiscard]] size_t count_wrong(size_t first, std::span<const float> result);

 private:
  ExactSums(const Codec& codec, const SimInputs& inputs, unsigned ranks, size_t floats, double largest);

  [[nodiscard]] bool contributions_are_random();
  void contribute(unsigned rank, size_t first, size_t count);
  [[nodiscard]] size_t count_tied(size_t first, std::span<const float> result) const;

  const SimInputs& inputs_;
  std::vector<Codec> codecs_;
  double range_;  // a sum is exact if the magnitudes of its terms add up to at most this
  std::vector<uint8_t> block_;
  std::vector<float> sum_;
  std::vector<double> size_;  // sums of the magnitudes that were added: sum |x|
};

}  // namespace gradlane
