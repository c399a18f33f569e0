// calibrate.h - `gradlane plan --calibrate`: what an exchange costs on this host and its links, as a file
#pragma once

#include <optional>
#include <string>

#include "collectives/plan/calibration.h"

namespace gradlane {

// As the user wrote them. Empty strings stand for the defaults.
struct CalibrateOptions {
  std::string output;  // FILE
  std::string socket;  // of the daemon
  std::string admin;   // its admin socket, where that is not beside it
  std::string rank;
  std::optional<PlanPort> port;   // whose usual figures stand for what is not measured; UDP
  std::optional<unsigned> lanes;  // without a daemon; 1
  bool alone = false;
  bool quick = false;
  bool json = false;
};

// Measures this host, and, where a daemon runs, as a trainer together with all other ranks its links; writes the file.
// Returns the exit status: 1 if an operation failed, which standard error then says. Throws SetupError for what cannot
// be used.
[[nodiscard]] int run_calibrate(const CalibrateOptions& options);

}  // namespace gradlane
