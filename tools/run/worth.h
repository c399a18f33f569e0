// worth.h - what compression has brought a job that is over, as its daemons tell it (main thread)
#pragma once

#include <string>
#include <vector>

namespace gradlane {

// Lines for people, from the admin sockets of all nodes; none if less than a megabyte was sent, a daemon does not
// answer at once, or GRADLANE_SUMMARY is 0.
[[nodiscard]] std::vector<std::string> job_worth(const std::vector<std::string>& admins);

}  // namespace gradlane
