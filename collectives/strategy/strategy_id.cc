// strategy_id.cc - names of strategies, and the operations they support (set-up code, except code() and supports())
#include "collectives/strategy/strategy_id.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "collectives/operation.h"

namespace gradlane {
namespace {

using Kind = StrategyId::Kind;

constexpr unsigned kPackedBits = 12;
constexpr std::string_view kStream = "stream";

[[noreturn]] void refuse(std::string_view name) {
  throw SetupError("strategy is '" + std::string(name) + "', allowed: " + kStrategyUsage);
}

// Returns the number after the colon. Throws SetupError if it is not one from `least` to `most`.
unsigned number_in(std::string_view name, std::string_view digits, unsigned least, unsigned most) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool all = error == std::errc() && end == digits.data() + digits.size();
  if (!all || value < least || value > most) refuse(name);
  return value;
}

}  // namespace

const char* strategy_word(Kind kind) noexcept {
  switch (kind) {
    case Kind::kRing:
      return "ring";
    case Kind::kDirect:
      return "direct";
    case Kind::kRings:
      return "rings";
    case Kind::kAggregator:
      break;
  }
  return "aggregator";
}

StrategyName StrategyId::name() const noexcept {
  StrategyName text;
  text.add(strategy_word(kind));
  if (kind == Kind::kRings) text.add(":").add(uint64_t{group()});
  if (kind == Kind::kAggregator) text.add(":").add(uint64_t{root()}).add(stream ? ",stream" : "");
  return text;
}

uint32_t StrategyId::code() const noexcept {
  return (static_cast<uint32_t>(kind) + 1) | uint32_t{param} << 8 | (stream ? 1U : 0U) << 16;
}

std::optional<StrategyId> strategy_of(uint32_t code) noexcept {
  const uint32_t kind = (code & 0xff) - 1;
  if (kind > static_cast<uint32_t>(Kind::kAggregator)) return std::nullopt;
  const StrategyId id{static_cast<Kind>(kind), static_cast<uint8_t>(code >> 8), (code >> 16 & 1) != 0};
  const bool has_param = id.kind == Kind::kRings || id.kind == Kind::kAggregator;
  if (code >> 17 != 0 || (id.stream && id.kind != Kind::kAggregator) || (id.param != 0 && !has_param)) {
    return std::nullopt;
  }
  return id;
}

StrategyId find_strategy(std::string_view name) {
  const size_t colon = name.find(':');
  const std::string_view word = name.substr(0, colon);
  if (colon == std::string_view::npos) {
    if (word == "ring") return {};
    if (word == "direct") return {.kind = Kind::kDirect};
    refuse(name);
  }
  std::string_view rest = name.substr(colon + 1);
  if (word == "rings") {
    return {.kind = Kind::kRings, .param = static_cast<uint8_t>(number_in(name, rest, 1, 256) - 1)};
  }
  if (word != "aggregator") refuse(name);
  const size_t comma = rest.find(',');
  const bool stream = comma != std::string_view::npos;
  if (stream && rest.substr(comma + 1) != kStream) refuse(name);
  return {.kind = Kind::kAggregator,
          .param = static_cast<uint8_t>(number_in(name, rest.substr(0, comma), 0, 255)),
          .stream = stream};
}

std::vector<StrategyId> find_strategies(std::string_view names) {
  std::vector<StrategyId> found;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const std::string_view name = names.substr(begin, end - begin);
    if (name == kStream && !found.empty() && found.back().kind == Kind::kAggregator) {
      found.back().stream = true;
    } else {
      found.push_back(find_strategy(name));
    }
    begin = end + 1;
  }
  return found;
}

uint64_t pack_strategies(std::span<const StrategyId> strategies) noexcept {
  if (strategies.size() == 1 && strategies.front() == StrategyId{}) return 0;
  uint64_t packed = 0;
  for (size_t i = 0; i < std::min(strategies.size(), kMaxStrategies); ++i) {
    const StrategyId& it = strategies[i];
    const auto kind = static_cast<uint64_t>(it.kind) + 1;
    packed |= (kind | (it.stream ? 8U : 0U) | uint64_t{it.param} << 4) << kPackedBits * i;
  }
  return packed;
}

FixedText<160> packed_names(uint64_t packed) noexcept {
  FixedText<160> text;
  if (packed == 0) return text.add("ring");
  for (; packed != 0; packed >>= kPackedBits) {
    const uint64_t kind = packed & 7;
    if (!text.empty()) text.add(", ");
    if (kind == 0 || kind > static_cast<uint64_t>(Kind::kAggregator) + 1) {
      text.add("unknown");
    } else {
      const StrategyId id{static_cast<Kind>(kind - 1), static_cast<uint8_t>(packed >> 4), (packed & 8) != 0};
      text.add(id.name().view());
    }
  }
  return text;
}

std::string strategy_fault(const StrategyId& strategy, unsigned world) {
  const std::string ranks = std::to_string(world) + (world == 1 ? " rank" : " ranks");
  if (strategy.kind == Kind::kRings && world % strategy.group() != 0) {
    return std::string(strategy.name().view()) + ": " + std::to_string(strategy.group()) + " does not divide " + ranks;
  }
  if (strategy.kind == Kind::kAggregator && strategy.root() >= world) {
    return std::string(strategy.name().view()) + ": there is no rank " + std::to_string(strategy.root()) + " of " +
           ranks;
  }
  return {};
}

bool supports(const StrategyId& strategy, OpKind kind) noexcept {
  switch (strategy.kind) {
    case Kind::kRing:
      return kind <= OpKind::kBarrier;
    case Kind::kDirect:
      return true;
    case Kind::kRings:
    case Kind::kAggregator:
      break;
  }
  return kind == OpKind::kAllReduce || kind == OpKind::kBarrier;
}

}  // namespace gradlane
