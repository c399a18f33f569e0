// savings.h - the gain by compression in a job that is over, as its daemons report it (main thread)
#pragma once

#include <string>
#include <vector>

namespace gradlane {

// Returns lines for the user, from the admin sockets of all nodes. Returns none if less than a megabyte was sent, if a
// daemon does not answer at once, or if GRADLANE_SUMMARY is 0.
[[nodiscard]] std::vector<std::string> job_savings(const std::vector<std::string>& admins);

}  // namespace gradlane
