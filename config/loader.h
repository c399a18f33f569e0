// loader.h - conversion of a YAML file to a NodeConfig, and back (set-up only)
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace gradlane {

struct ConfigTree;

// Chooses the node that a file is read for. `hosts` is for files that do not name their rank: `rank` is missing, or
// auto.
struct NodeChoice {
  std::optional<unsigned> rank;    // takes precedence over the file's rank
  std::vector<std::string> hosts;  // names and addresses of this machine, to find it in `nodes[].host`
};
[[nodiscard]] NodeChoice this_machine(std::optional<unsigned> rank = {});

// Reads and checks the text of a configuration file (docs/configuration.md). `name` stands for the file in messages.
// Throws SetupError: "file:line:column: key: what is wrong, what is allowed". If there are several faults, it reports
// the first one in the file. Faults of the YAML syntax come before those, and missing keys come last.
[[nodiscard]] NodeConfig parse_config(std::string_view text, const std::string& name, const NodeChoice& choice = {});
// Does the same for a tree that is already parsed.
[[nodiscard]] NodeConfig read_config(const ConfigTree& source, const NodeChoice& choice = {});

// Returns all settings, defaults included, as a file that parse_config() reads to the same NodeConfig.
[[nodiscard]] std::string config_text(const NodeConfig& config);

// Returns a digest of the settings that must be equal on all nodes. These are the table of nodes (ranks, addresses and
// UDP ports), trainers, local_reduce, lanes, UDP port and ToS classes.
[[nodiscard]] uint64_t rank_table_digest(const NodeConfig& config);
// Returns the same settings one by one, so that neighbours can report which one differs.
[[nodiscard]] RingSettings ring_settings(const NodeConfig& config);

}  // namespace gradlane
