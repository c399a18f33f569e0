// quality.h - what a codec does to gradients: how small they get, and how far the mean of all ranks is off
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compress/codec.h"

namespace gradlane {

using Contributions = std::vector<std::span<const float>>;  // one of each rank, all of the same length, not empty

// Adds up over all that is measured.
struct Quality {
  size_t fp32_bytes = 0;
  size_t encoded_bytes = 0;
  double error = 0;  // ||est - mean||^2
  double norm = 0;   // ||mean||^2

  // fp32 bytes per encoded byte.
  [[nodiscard]] double ratio() const { return static_cast<double>(fp32_bytes) / static_cast<double>(encoded_bytes); }
  // The vector-normalized mean squared error: 0 is exact, 1 is what an estimate of 0 has. 0 where there is no error;
  // not a number or infinite where the gradients are, or their mean is 0. (Vargaftik et al., DRIVE, NeurIPS 2021.)
  [[nodiscard]] double vnmse() const { return error == 0 ? 0 : error / norm; }
};

// Sends the contributions once along a ring, in blocks of `block_floats`: the first rank's are encoded, each other rank
// adds its own in a hop. est is what decodes from the last rank's blocks, divided by the ranks; mean is exact (double).
// Bytes are those of the last rank's blocks. Of codecs that do not add, an owner does, and encodes the sum. Each
// contribution is one operation, which is looked at first; nothing is kept from others. Of a vote there is no error.
[[nodiscard]] Quality ring_quality(const Codec& codec, const Contributions& ranks, size_t block_floats);

// The same of each contribution by itself, which is what a rank sends first, added up over all of them.
[[nodiscard]] Quality single_quality(const Codec& codec, const Contributions& ranks, size_t block_floats);

}  // namespace gradlane
