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

// What must come out of a sum, whatever the way round: decode(encode()) of each rank's contribution, added up. Not of
// codecs whose contributions are made with random numbers, which nobody here knows; where only the result depends on
// them, as of a vote that is tied, all that can come out of it is right.
class ExactSums {
 public:
  // Nothing: it cannot be known. `floats` of each rank; `largest` is the largest magnitude of all.
  [[nodiscard]] static std::optional<ExactSums> of(const Codec& codec, const SimInputs& inputs, unsigned ranks,
                                                   size_t floats, double largest);

  // Elements of a result, first, first + 1, ... of the tensor, that are not what they must be; at most
  // SimInputs::kMaxRun.
  [[nodiscard]] size_t count_wrong(size_t first, std::span<const float> result);

 private:
  ExactSums(const Codec& codec, const SimInputs& inputs, unsigned ranks, size_t floats, double largest);

  [[nodiscard]] bool draws_lots();
  void contribute(unsigned rank, size_t first, size_t count);
  [[nodiscard]] size_t count_tied(size_t first, std::span<const float> result) const;

  const SimInputs& inputs_;
  std::vector<Codec> codecs_;
  double range_;  // sums of magnitudes up to that are exact
  std::vector<uint8_t> block_;
  std::vector<float> sum_;
  std::vector<double> size_;  // of what was added: sum |x|
};

}  // namespace gradlane
