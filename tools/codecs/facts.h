// facts.h - what a table has of a codec
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compress/codec.h"
#include "tools/bench/codec.h"
#include "tools/bench/samples.h"

namespace gradlane {

// What the bytes of a sum do not depend on.
enum class SameBytes : uint8_t {
  kBuckets,  // the way round, the number of lanes, and what else is in the tensor
  kWays,     // the way round and the number of lanes
  kRanks,    // the rank that looks at it: within a strategy
};
[[nodiscard]] SameBytes same_bytes(const Codec& codec) noexcept;
[[nodiscard]] const char* same_bytes_name(SameBytes same) noexcept;

[[nodiscard]] const char* ways_name(const CodecRow& row) noexcept;

// The bound of one contribution, in words.
[[nodiscard]] std::string bound_text(const Codec& codec);

struct CodecFact {
  Codec codec;
  std::vector<CodecFigures> figures;  // of each set of data
};

}  // namespace gradlane
