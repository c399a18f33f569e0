// loader.h - from a YAML file to a NodeConfig, and back (set-up only)
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace gradlane {

struct ConfigTree;

// Which of its nodes a file is read for, where it does not say (`rank` is not there, or auto), or whatever it says.
struct NodeChoice {
  std::optional<unsigned> rank;    // comes before that of the file
  std::vector<std::string> hosts;  // what `nodes[].host` of this machine may be: its name and addresses
};
[[nodiscard]] NodeChoice this_machine(std::optional<unsigned> rank = {});

// Reads and checks the text of a configuration file (docs/configuration.md); `name` stands for the file in messages.
// Throws SetupError: "file:line:column: key: what is wrong, what is allowed". With several faults it names the first
// one in the file; before those come faults of the YAML syntax, and behind them keys that are missing.
[[nodiscard]] NodeConfig parse_config(std::string_view text, const std::string& name, const NodeChoice& choice = {});
// The same of a tree that has been parsed.
[[nodiscard]] NodeConfig read_config(const ConfigTree& source, const NodeChoice& choice = {});

// All settings, defaults included, as a file that parse_config() reads to the same NodeConfig.
[[nodiscard]] std::string config_text(const NodeConfig& config);

// A digest of what must be equal on all nodes: the table of nodes (ranks and IP addresses), trainers, local_reduce,
// lanes, UDP port, ToS classes.
[[nodiscard]] uint64_t rank_table_digest(const NodeConfig& config);
// What goes into that, one by one, so that neighbours can name what differs.
[[nodiscard]] RingSettings ring_settings(const NodeConfig& config);

}  // namespace gradlane
