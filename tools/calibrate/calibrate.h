// calibrate.h - `gradlane plan --calibrate`: costs of an exchange on this host and its links, measured and written to a
// file
#pragma once

#include <optional>
#include <string>

#include "collectives/cost/calibration.h"

namespace gradlane {

// The options as the user wrote them. Empty strings stand for the defaults.
struct CalibrateOptions {
  std::string output;  // FILE
  std::string socket;  // the daemon's socket for trainers
  std::string admin;   // the daemon's admin socket, if it is not beside `socket`
  std::string rank;
  std::optional<PlanPort> port;   // without a daemon: kind of port whose usual figures are used; UDP if none is given
  std::optional<unsigned> lanes;  // without a daemon: number of lanes; 1 if none is given
  bool alone = false;
  bool quick = false;
  bool json = false;
  std::string hosts;   // list of gradlaned --nodes: starts a daemon for this measurement
  std::string python;  // program that has PyTorch; "none": measure nothing through it
};

// Measures this host. If a daemon runs here, it also joins the ring as a trainer and measures the links, together with
// all other ranks. Writes the file. Returns the exit status: 1 if an operation failed; the reason is on standard error
// then. Throws SetupError if options, daemon or file cannot be used.
[[nodiscard]] int run_calibrate(CalibrateOptions options);

}  // namespace gradlane
