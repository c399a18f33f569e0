// check.h - `gradlane check`: reasons why a ring does not start, found before its daemons start or while they try
#pragma once

#include <optional>
#include <string>

namespace gradlane {

// The options as the user wrote them.
struct CheckOptions {
  std::string config;
  std::optional<unsigned> rank;  // rank of this node; it overrides the file's
  std::string time;              // "" means 5s
  bool json = false;
};

// Checks the configuration, the machine, and the paths to the neighbours. For the paths it asks the daemon that runs,
// or starts one during the check. Prints a line for each item. Returns 0, or 1 if anything fails. Throws SetupError for
// options that cannot be used.
[[nodiscard]] int run_check(const CheckOptions& options);

}  // namespace gradlane
