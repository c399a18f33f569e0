// node_words.h - a node's configuration from the command line, without a file (set-up only)
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/accelerator.h"
#include "config/host_match.h"
#include "config/yaml_tree.h"

namespace gradlane {

// What was written. All but `nodes` may be empty.
struct NodeWords {
  std::string nodes;                  // hosts, @FILE or @slurm
  std::vector<std::string> ports;     // "udp", "af_packet:eth1", "net_memif0,...", "0000:03:00.0", or YAML
  std::vector<std::string> settings;  // as of apply_settings()
  std::optional<unsigned> rank;       // comes before the address
};

// Functions that ask the machine.
struct Surroundings {
  std::function<std::vector<FoundHost>(const std::vector<Host>&)> look_up;
  std::function<std::vector<LocalIp>()> local_ips;
  Environment environment;
  uid_t user = 0;                                              // of this process
  std::function<bool(const std::string&)> can_hold_sockets{};  // as of base/socket_folders.h
};

struct WordsTree {
  ConfigTree tree;
  std::string launcher;  // whose rank it is, as of RankHere
};

// The tree of the file that the words amount to. Throws SetupError, "--nodes ...: what is wrong, what is allowed".
[[nodiscard]] WordsTree tree_of(const NodeWords& words, const Surroundings& surroundings);

// The same, read as a file is.
struct LoadedWords {
  AnyConfig config;
  std::string launcher;
};
[[nodiscard]] LoadedWords load_node_words(const NodeWords& words, const Surroundings& surroundings);

// For whoever says neither where a file is nor which nodes there are: how to do that.
[[nodiscard]] std::string ways_to_start(const Environment& environment);

}  // namespace gradlane
