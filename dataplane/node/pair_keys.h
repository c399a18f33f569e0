// pair_keys.h - keys for pairs of nodes, agreed on through the program that starts the daemons (set-up only)
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "config/config.h"
#include "dataplane/secure/ring_key.h"

namespace gradlane {

// The keys that a node shares with others, by their number; none for itself.
using PairKeys = std::vector<std::optional<RingKey>>;

// Value of auth.key_file for these keys.
inline constexpr const char* kPairKeyFile = "stdin";

// Writes "key HEX", the public key of this node, as a line to `out`. Then reads lines "NODE HEX" from `in`, the public
// keys of all nodes in any order, until there is one of each; this node's own may be among them. Throws SetupError,
// also after `patience`.
[[nodiscard]] PairKeys agree_on_keys(const NodeConfig& config, int in, int out, std::chrono::seconds patience);

}  // namespace gradlane
