// settle.h - preparation of codecs for an operation, as all ranks do it before they encode, in one process
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compress/codec.h"
#include "tools/bench/quality.h"

namespace gradlane {

// Returns elements first, first + 1, ... of a rank's contribution: at least one and at most `count`. They are valid
// until the next call.
using Elements = std::function<std::span<const float>(size_t rank, size_t first, size_t count)>;

// Returns the codec of each rank for one operation with these contributions. The contributions have been scanned, the
// ranks have agreed, and the codecs are seeded.
[[nodiscard]] std::vector<Codec> settled(const Codec& codec, const Contributions& ranks, uint64_t seed = 1);
// Returns the codec of each rank for tensors that are not in memory as a whole; `elements` makes them slice by slice.
[[nodiscard]] std::vector<Codec> settled(const Codec& codec, size_t ranks, size_t floats, const Elements& elements,
                                         uint64_t seed = 1);

}  // namespace gradlane
