// check.h - `gradlane check`: why a ring does not come up, before and while it does not
#pragma once

#include <optional>
#include <string>

namespace gradlane {

// As the user wrote them.
struct CheckOptions {
  std::string config;
  std::optional<unsigned> rank;  // that of this node, whatever the file says
  std::string time;              // "": 5s
  bool json = false;
};

// Looks at the configuration, the machine and, with the daemon that runs or one that it starts for the while, the ways
// to the neighbours. Prints a line for each item. Returns 0, or 1 if anything fails. Throws SetupError for options that
// cannot be used.
[[nodiscard]] int run_check(const CheckOptions& options);

}  // namespace gradlane
