// advice.h - the decision of a plan in words, and what it is based on (no I/O)
#pragma once

#include <string>
#include <vector>

#include "tools/plan/rows.h"

namespace gradlane {

// Returns the origin of the figures if nothing was calibrated: " (by usual figures, gradients of N(0, 0.01))"; else
// empty.
[[nodiscard]] std::string origin_text(const PlanSetting& setting);

// Returns "4 nodes and 10 Gb/s assumed: --nodes, --gbps", for figures that were neither given nor measured; else empty.
[[nodiscard]] std::string assumed_text(const PlanSetting& setting);
// Returns how to get better figures for the time of computing. It is empty if they were given or measured.
[[nodiscard]] std::string compute_note(const PlanSetting& setting);

// Returns the decision, which is the last line of a plan: what to do, what to set, and what that is based on. If the
// calibration's own checks were off, it also says what to do then.
[[nodiscard]] std::string advice(const PlanSetting& setting, const PlanRows& rows);

// The keys to set in the daemons' configuration, so that this codec uses these strategies ("ring+direct").
struct PlanConfiguration {
  std::string codec;       // "codec: auto:2^-10"
  std::string strategies;  // "strategies: [ring, direct]"; "": nothing to set
};
// `allowed`: strategies that the daemons allow; empty: they are not known, so the default counts.
[[nodiscard]] PlanConfiguration configuration_of(const std::string& codec, const std::string& ways,
                                                 const std::vector<std::string>& allowed);
// Returns both, joined by " and ", or only the codec.
[[nodiscard]] std::string configuration_text(const std::string& codec, const std::string& ways,
                                             const std::vector<std::string>& allowed);

}  // namespace gradlane
