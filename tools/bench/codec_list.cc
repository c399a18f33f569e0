// codec_list.cc - codecs on command lines: lists, pairs for both directions, and which strategies carry them (set-up)
#include "tools/bench/codec_list.h"

#include <algorithm>

#include "collectives/strategy/codec_needs.h"
#include "collectives/wire.h"

namespace gradlane {
namespace {

using Kind = StrategyId::Kind;

constexpr std::string_view kAll = "all";
constexpr std::string_view kAutoWord = "auto";

bool begins_name(std::string_view text) {
  const std::string_view word = text.substr(0, text.find_first_of(":,/+"));
  const auto is_word = [word](const CodecRow& row) { return word == row.word; };
  // "auto" is no codec; it stands for one that is chosen later.
  return text == kAll || word == kAutoWord || std::ranges::any_of(codec_table(), is_word);
}

// Splits the texts into names, without replacing "all".
std::vector<std::string> split_list(const std::vector<std::string>& texts) {
  std::vector<std::string> names;
  for (const std::string& text : texts) {
    const size_t before = names.size();
    for (size_t at = 0; at <= text.size();) {
      const size_t comma = std::min(text.find(',', at), text.size());
      const std::string part = text.substr(at, comma - at);
      if (names.size() == before || begins_name(part)) {
        names.push_back(part);
      } else {
        names.back() += "," + part;
      }
      at = comma + 1;
    }
  }
  return names;
}

}  // namespace

std::vector<std::string> all_codecs() {
  std::vector<std::string> names;
  for (const CodecRow& row : codec_table()) names.emplace_back(row.example);
  return names;
}

bool names_all(const std::string& text) {
  const std::vector<std::string> names = split_list({text});
  return std::ranges::find(names, kAll) != names.end();
}

std::vector<std::string> codec_list(const std::vector<std::string>& texts) {
  std::vector<std::string> names;
  for (const std::string& name : split_list(texts)) {
    if (name != kAll) {
      names.push_back(name);
      continue;
    }
    for (const std::string& each : all_codecs()) names.push_back(each);
  }
  return names;
}

CodecPair find_codec_pair(std::string_view name) {
  for (size_t slash = name.find('/'); slash != name.npos; slash = name.find('/', slash + 1)) {
    const std::string_view back = name.substr(slash + 1);
    // After the slash, anything but a number is meant to be a codec.
    const bool number = !back.empty() && back.front() >= '0' && back.front() <= '9';
    if (number && !begins_name(back)) continue;
    return {find_codec(name.substr(0, slash)), find_codec(back)};
  }
  return {find_codec(name)};
}

StrategySupport strategy_support(const CodecRow& row) noexcept {
  if (needs_owners(row)) return StrategySupport::kOwners;
  return needs_links(row) ? StrategySupport::kLinks : StrategySupport::kAny;
}

std::string strategy_fault(const CodecPair& codec, const StrategyId& strategy, std::span<const StrategyId> allowed,
                           unsigned world) {
  const std::string name(strategy.name().view());
  const bool pair = codec.back.has_value();
  if (pair && strategy.kind != Kind::kAggregator)
    return name + " uses one codec for both directions; only an aggregator can use two";
  const unsigned ranks = world != 0 ? world : kMaxWorld;
  for (const Codec* one : {&codec.there, pair ? &*codec.back : &codec.there}) {
    if (!carries(strategy, one->row(), ranks)) {
      return "blocks of " + one->name() +
             " cannot be added up and need an owner, as with direct or an aggregator; strategy " + name + " has none";
    }
    if (needs_links(one->row()) && !links_all(allowed, ranks)) {
      return one->name() +
             " needs links between all ranks, on which they first agree on a scale: allow strategy direct, too";
    }
  }
  return "";
}

}  // namespace gradlane
