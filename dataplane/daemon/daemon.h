// daemon.h - gradlaned: the nodes of one process, from start to orderly end (control thread)
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "dataplane/node/pair_keys.h"

namespace gradlane {

// Runs the nodes of this process until something ends them. Returns 0 after SIGTERM or SIGINT, and after SIGHUP if
// there is no log file. Also returns 0 when all processes of `serving` have ended, unless it is empty. Returns
// kDeviceLostStatus when an interface or a card is lost. `pairs`: keys of the only node, in place of those in its file;
// or null. `version` is the version that the daemon reports. `removes_log`: the caller removes the log and its folder
// afterwards. Throws SetupError if it cannot start.
//
// Call it once per process. The caller must then end the process by std::_Exit(), because DPDK's threads still run, and
// may still handle links whose other side leaves.
int run_daemon(const std::vector<NodeConfig>& nodes, const PairKeys* pairs, std::span<const pid_t> serving,
               const std::string& version, bool removes_log);

}  // namespace gradlane
