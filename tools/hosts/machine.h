// machine.h - this machine's addresses, and look-up of host names (set-up only)
#pragma once

#include <vector>

#include "config/host_match.h"
#include "config/node_words.h"

namespace gradlane {

// Returns the IP addresses of all interfaces.
[[nodiscard]] std::vector<LocalIp> local_ips();

// Looks all hosts up at the same time, within 5 s. Throws SetupError, which names the hosts without an address, and
// says why.
[[nodiscard]] std::vector<FoundHost> look_up(const std::vector<Host>& hosts, const std::string& where);

// Returns a function that reads this process's environment. An empty variable counts as not set.
[[nodiscard]] Environment environment();

// Returns all of these functions, and the user of this process.
[[nodiscard]] HostQueries queries();

}  // namespace gradlane
