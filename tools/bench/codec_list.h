// codec_list.h - codecs on command lines: lists, pairs for both directions, and which strategies carry them (set-up)
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/strategy/strategy_id.h"
#include "compress/codec.h"

namespace gradlane {

// Returns an example of each row of the codec table, in its order.
[[nodiscard]] std::vector<std::string> all_codecs();

// Returns the names in the given order; blanks or commas separate them. If the text after a comma does not begin with a
// codec's word, it belongs to the name before ("inceptionn:10,truncate"). "all" stands for all_codecs().
[[nodiscard]] std::vector<std::string> codec_list(const std::vector<std::string>& texts);
// Returns whether "all" is among the names.
[[nodiscard]] bool names_all(const std::string& text);

// The codec for fp32 on the wire. For aggregators, "fixed:10/raw" names a second one for the return path.
struct CodecPair {
  Codec there;
  std::optional<Codec> back{};

  [[nodiscard]] std::string name() const { return back ? there.name() + "/" + back->name() : there.name(); }
};

// Finds the codecs of a name. A slash before a codec's word separates a pair; other slashes belong to names
// ("qsgd:4/512"). Throws SetupError.
[[nodiscard]] CodecPair find_codec_pair(std::string_view name);

// The strategies that can carry sums of a codec.
enum class StrategySupport : uint8_t {
  kAny,     // every strategy
  kLinks,   // every strategy, if all nodes have links to all others: needs_links()
  kOwners,  // strategies whose blocks have owners: needs_owners()
};
[[nodiscard]] StrategySupport strategy_support(const CodecRow& row) noexcept;

// Returns why `strategy` cannot carry sums of the codec on nodes that allow the strategies `allowed`; empty if it can.
// `world` is the number of ranks; 0: unknown.
[[nodiscard]] std::string strategy_fault(const CodecPair& codec, const StrategyId& strategy,
                                         std::span<const StrategyId> allowed, unsigned world = 0);

}  // namespace gradlane
