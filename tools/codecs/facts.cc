// facts.cc - facts about a codec, for tables
#include "tools/codecs/facts.h"

#include <fmt/format.h>

#include <cmath>

#include "tools/bench/codec_list.h"

namespace gradlane {
namespace {

// Returns "2^-10" for a power of two, and decimals for other values.
std::string power_text(double value) {
  int exponent = 0;
  if (std::frexp(value, &exponent) == 0.5) return fmt::format("2^{}", exponent - 1);
  return fmt::format("{:.3g}", value);
}

}  // namespace

SameBytes same_bytes(const Codec& codec) noexcept {
  if (!codec.exact_sums()) return SameBytes::kRanks;
  const CodecRow& row = codec.row();
  return row.agreement == Agreement::kNone && row.passes == 0 ? SameBytes::kBuckets : SameBytes::kWays;
}

const char* same_bytes_name(SameBytes same) noexcept {
  switch (same) {
    case SameBytes::kBuckets:
      return "buckets";
    case SameBytes::kWays:
      return "ways";
    case SameBytes::kRanks:
      break;
  }
  return "ranks";
}

const char* ways_name(const CodecRow& row) noexcept {
  switch (strategy_support(row)) {
    case StrategySupport::kAny:
      return "any";
    case StrategySupport::kLinks:
      return "links";
    case StrategySupport::kOwners:
      break;
  }
  return "owners";
}

std::string bound_text(const Codec& codec) {
  if (codec.row().exact()) return "exact";
  const CodecError error = codec.error();
  if (!error.bounded) return "none";
  std::string text;
  const auto add = [&text](const std::string& term) { text += (text.empty() ? "" : " + ") + term; };
  if (error.relative != 0) add(power_text(error.relative) + " f");
  if (error.of_largest != 0) add(power_text(error.of_largest) + " L");
  // A very small absolute term, far below typical gradients, is left out unless it is the only term.
  if (error.absolute > 0x1p-30 || text.empty()) add(power_text(error.absolute));
  return text;
}

}  // namespace gradlane
