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

// Words of the command line. All but `nodes` may be empty.
struct NodeWords {
  std::string nodes;                  // hosts, @FILE or @slurm
  std::vector<std::string> ports;     // "udp", "af_packet:eth1", "net_memif0,...", "0000:03:00.0", or YAML
  std::vector<std::string> settings;  // see apply_settings()
  std::optional<unsigned> rank;       // takes precedence over addresses
};

// Functions that ask the machine.
struct HostQueries {
  std::function<std::vector<FoundHost>(const std::vector<Host>&)> look_up;
  std::function<std::vector<LocalIp>()> local_ips;
  Environment environment;
  uid_t user = 0;                                              // user of this process
  std::function<bool(const std::string&)> can_hold_sockets{};  // see base/socket_folders.h
};

struct WordsTree {
  ConfigTree tree;
  std::string launcher;  // see RankHere
};

// Returns the tree of a file that means the same as the words. Throws SetupError, "--nodes ...: what is wrong, what is
// allowed".
[[nodiscard]] WordsTree tree_of(const NodeWords& words, const HostQueries& queries);

// The configuration that this tree gives when it is read like a file.
struct LoadedWords {
  AnyConfig config;
  std::string launcher;
};
[[nodiscard]] LoadedWords load_node_words(const NodeWords& words, const HostQueries& queries);

// Returns instructions for users who name neither a file nor nodes.
[[nodiscard]] std::string ways_to_start(const Environment& environment);

}  // namespace gradlane
