// run.h - `gradlane run`: nodes on this machine, and a command that uses them
#pragma once

#include <string>
#include <vector>

namespace gradlane {

// Options as the user wrote them. Empty strings stand for the defaults.
struct RunOptions {
  std::string nodes;
  std::string link;
  std::string codec;
  std::string strategies;
  std::string lanes;
  std::string trainers;  // trainers per node
  std::string mtu;       // of IP packets
  std::string rate;      // rate of links
  std::string repack;    // accelerators may put packets together
  std::string timeout;   // time limit of operations
  std::string accelerator;
  std::string idle;
  std::string security;
  std::string log;
  std::string metrics;       // TCP port of the metrics of node 0
  std::string keep_configs;  // directory that gets copies of the configuration files
  bool local_reduce = false;
  bool inside = false;  // the command runs in the nodes' namespaces
  bool ipv6 = false;    // nodes have IPv6 addresses
  bool no_prefix = false;
  bool has_command = false;  // there was a "--"
  std::vector<std::string> command;
};

// Starts the daemons, and then the command once per trainer (or host behind an accelerator). Ends when all of these
// have ended, or one has failed. Without a command, it keeps the daemons up until SIGINT or SIGTERM. When it returns,
// all processes that it started have ended, and all files that it made are gone.
//
// Returns the exit status: that of the first trainer that failed (128 + signal if a signal ended it), or 1 if a daemon
// failed. It is 130 or 143 after SIGINT or SIGTERM, 127 if the command does not exist, and 126 if it is not executable.
// Throws SetupError if options cannot be used.
[[nodiscard]] int run_nodes(const RunOptions& options);

}  // namespace gradlane
