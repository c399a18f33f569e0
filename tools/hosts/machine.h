// machine.h - what the machine says: its addresses, and what names mean here (set-up only)
#pragma once

#include <vector>

#include "config/host_match.h"
#include "config/node_words.h"

namespace gradlane {

// All that its interfaces have.
[[nodiscard]] std::vector<LocalIp> local_ips();

// All at the same time, and for 5 s at most: throws SetupError, which names those that have no address, and why.
[[nodiscard]] std::vector<FoundHost> look_up(const std::vector<Host>& hosts, const std::string& where);

// Of this process.
[[nodiscard]] Environment environment();

// All of these, and the user.
[[nodiscard]] Surroundings surroundings();

}  // namespace gradlane
