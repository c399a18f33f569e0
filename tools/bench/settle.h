// settle.h - what must be known of an operation before its codec encodes anything, found out in one process
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compress/codec.h"
#include "tools/bench/quality.h"

namespace gradlane {

// Elements first, first + 1, ... of a rank's contribution; `count` of them at most, at least one, valid until the next
// call.
using Elements = std::function<std::span<const float>(size_t rank, size_t first, size_t count)>;

// The codec of each rank for one operation with these contributions: looked at, agreed upon, seeded.
[[nodiscard]] std::vector<Codec> settled(const Codec& codec, const Contributions& ranks, uint64_t seed = 1);
// The same of tensors that are not there as a whole.
[[nodiscard]] std::vector<Codec> settled(const Codec& codec, size_t ranks, size_t floats, const Elements& elements,
                                         uint64_t seed = 1);

}  // namespace gradlane
