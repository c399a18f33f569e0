// run.h - `gradlane run`: nodes on this machine, and a command that uses them
#pragma once

#include <string>
#include <vector>

namespace gradlane {

// As the user wrote them. Empty strings stand for the defaults.
struct RunOptions {
  std::string nodes;
  std::string link;
  std::string codec;
  std::string strategies;
  std::string lanes;
  std::string trainers;  // per node
  std::string mtu;       // of IP
  std::string rate;      // of links
  std::string repack;    // of accelerators
  std::string timeout;   // of operations
  std::string accelerator;
  std::string idle;
  std::string log;
  std::string metrics;       // TCP port of node 0's
  std::string keep_configs;  // directory that gets copies of the configuration files
  bool local_reduce = false;
  bool inside = false;  // the command runs in the nodes' namespaces
  bool ipv6 = false;    // addresses of sockets
  bool no_prefix = false;
  bool has_command = false;  // there was a "--"
  std::vector<std::string> command;
};

// Starts the daemons, then the command once per trainer (or host behind an accelerator), and ends when all of these
// have, or one has failed. Without a command it keeps the daemons up until SIGINT or SIGTERM. When it returns all
// processes that it started have ended and all files that it made are gone. Returns the exit status: that of the first
// trainer to fail (128 + signal if one ended it), 1 if a daemon failed, 130 or 143 after SIGINT or SIGTERM, 127 or 126
// for a command that is not there or not executable. Throws SetupError for options that cannot be used.
[[nodiscard]] int run_nodes(const RunOptions& options);

}  // namespace gradlane
