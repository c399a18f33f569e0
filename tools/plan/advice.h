// advice.h - what to do, in words, and what that rests on (no I/O)
#pragma once

#include <string>
#include <vector>

#include "tools/plan/rows.h"

namespace gradlane {

// What the figures are of, where nothing was calibrated: " (by usual figures, gradients of N(0, 0.01))"; else empty.
[[nodiscard]] std::string origin_text(const PlanSetting& setting);

// "4 nodes and 10 Gb/s assumed: --nodes, --gbps", of what nobody has said or measured; else empty.
[[nodiscard]] std::string assumed_text(const PlanSetting& setting);
// How to have better figures of computing; empty: they were given or measured.
[[nodiscard]] std::string compute_note(const PlanSetting& setting);

// The last line of a plan, a decision: what to do and to set, what that rests on, and, where the calibration's own
// checks were off, what to do then.
[[nodiscard]] std::string advice(const PlanSetting& setting, const PlanRows& rows);

// The keys to set in the daemons' configuration, so that this codec uses these strategies ("ring+direct").
struct PlanConfiguration {
  std::string codec;       // "codec: auto:2^-10"
  std::string strategies;  // "strategies: [ring, direct]"; "": nothing to set
};
// `allowed`: the strategies that are there; empty: not known, so the default.
[[nodiscard]] PlanConfiguration configuration_of(const std::string& codec, const std::string& ways,
                                                 const std::vector<std::string>& allowed);
// Returns both, joined by " and ", or only the codec.
[[nodiscard]] std::string configuration_text(const std::string& codec, const std::string& ways,
                                             const std::vector<std::string>& allowed);

}  // namespace gradlane
