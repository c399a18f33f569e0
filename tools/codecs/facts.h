// facts.h - facts about a codec, for tables
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compress/codec.h"
#include "tools/bench/codec.h"
#include "tools/bench/samples.h"

namespace gradlane {

// The conditions that may change without changing the bytes of a sum.
enum class SameBytes : uint8_t {
  kBuckets,  // strategy, number of lanes, and the other elements of the tensor
  kWays,     // strategy and number of lanes
  kRanks,    // none but the rank: with one strategy, all ranks get the same bytes
};
[[nodiscard]] SameBytes same_bytes(const Codec& codec) noexcept;
[[nodiscard]] const char* same_bytes_name(SameBytes same) noexcept;

[[nodiscard]] const char* ways_name(const CodecRow& row) noexcept;

// Returns the error bound of one contribution as a text.
[[nodiscard]] std::string bound_text(const Codec& codec);

struct CodecFact {
  Codec codec;
  std::vector<CodecFigures> figures;  // one for each set of data
};

}  // namespace gradlane
