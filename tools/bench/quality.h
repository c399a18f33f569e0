// quality.h - what a codec does to gradients: their size, and the error of the mean of all ranks
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compress/codec.h"

namespace gradlane {

using Contributions = std::vector<std::span<const float>>;  // one per rank, all of the same length, not empty

// Sums over all blocks that were measured.
struct Quality {
  size_t fp32_bytes = 0;
  size_t encoded_bytes = 0;
  double error = 0;  // ||est - mean||^2
  double norm = 0;   // ||mean||^2

  // Returns the fp32 bytes per encoded byte.
  [[nodiscard]] double ratio() const { return static_cast<double>(fp32_bytes) / static_cast<double>(encoded_bytes); }
  // Returns the vector-normalized mean squared error: 0 is exact, 1 is the error of an estimate of 0. It is 0 if there
  // is no error. It is not a number or infinite if the gradients are, or if their mean is 0. (Vargaftik et al., DRIVE,
  // NeurIPS 2021.)
  [[nodiscard]] double vnmse() const { return error == 0 ? 0 : error / norm; }
};

// Sends the contributions along a ring once, in blocks of `block_floats`. The first rank's blocks are encoded, and each
// other rank adds its own in a hop. The estimate is decoded from the last rank's blocks and divided by the number of
// ranks; the mean is exact (double). The bytes are those of the last rank's blocks.
//
// If a codec's blocks cannot be added, an owner adds what they decode to, and encodes the sum. Each contribution is
// scanned as one operation of its own, without states of earlier ones. A vote has no vNMSE (not a number).
[[nodiscard]] Quality ring_quality(const Codec& codec, const Contributions& ranks, size_t block_floats);

// Encodes each contribution by itself, as the first rank of a ring does. The figures are sums over all contributions.
[[nodiscard]] Quality single_quality(const Codec& codec, const Contributions& ranks, size_t block_floats);

}  // namespace gradlane
