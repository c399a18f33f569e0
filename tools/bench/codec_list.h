// codec_list.h - codecs on command lines: lists of them, pairs for two ways, and where sums of each can go (set-up)
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/strategy/strategy_id.h"
#include "compress/codec.h"

namespace gradlane {

// An example of each row of the table, in its order.
[[nodiscard]] std::vector<std::string> all_codecs();

// Names in the order in which they are given, with blanks or commas between them. What follows a comma and begins with
// no codec's word belongs to the name before it ("inceptionn:10,truncate"). "all" stands for all_codecs().
[[nodiscard]] std::vector<std::string> codec_list(const std::vector<std::string>& texts);
// Whether "all" is among them.
[[nodiscard]] bool names_all(const std::string& text);

// How fp32 travels; of aggregators "fixed:10/raw": the way back by another codec.
struct CodecPair {
  Codec there;
  std::optional<Codec> back{};

  [[nodiscard]] std::string name() const { return back ? there.name() + "/" + back->name() : there.name(); }
};

// A slash before a codec's word is that of a pair; others belong to names ("qsgd:4/512"). Throws SetupError.
[[nodiscard]] CodecPair find_codec_pair(std::string_view name);

// Ways that sums can go.
enum class CodecWays : uint8_t {
  kAny,     // every strategy
  kLinks,   // every strategy, where all nodes have links to all others: needs_links()
  kOwners,  // strategies whose blocks have owners: needs_owners()
};
[[nodiscard]] CodecWays codec_ways(const CodecRow& row) noexcept;

// Why sums cannot go by `strategy` where nodes allow `allowed`, in words; empty: they can. `world`: how many ranks
// there are; 0: that is not known.
[[nodiscard]] std::string way_fault(const CodecPair& codec, const StrategyId& strategy,
                                    std::span<const StrategyId> allowed, unsigned world = 0);

}  // namespace gradlane
