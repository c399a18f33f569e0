// advice.h - the decision of a plan in words, and what it is based on (no I/O)
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/plan/rows.h"

namespace gradlane {

// Returns the origin of the figures if nothing was calibrated: " (by usual figures, gradients of N(0, 0.01))"; else
// empty.
[[nodiscard]] std::string origin_text(const PlanSetting& setting);

// Returns "4 nodes and 10 Gb/s assumed: --nodes, --gbps", for figures that were neither given nor measured; else empty.
[[nodiscard]] std::string assumed_text(const PlanSetting& setting);
// Returns "1 core per node".
[[nodiscard]] std::string cores_text(double cores);

// Returns the errors to expect: those of predictions of the same kind that were compared with trainings. There are none
// if exchanges are predicted from parts.
[[nodiscard]] std::optional<StepErrors> errors_of(const PlanSetting& setting, const PlanRows& rows);
// Returns a sentence about errors_of(), or an empty text.
[[nodiscard]] std::string errors_text(const PlanSetting& setting, const PlanRows& rows);
// Returns how to get better figures for the time of computing. It is empty if they were given or measured.
[[nodiscard]] std::string compute_note(const PlanSetting& setting);

// Returns the decision, which ends a plan: first what to do and what to set, then clauses about that, and what it is
// based on. If the calibration's own checks found large errors, the last clause says what to set then.
[[nodiscard]] std::vector<std::string> advice_clauses(const PlanSetting& setting, const PlanRows& rows);
// Returns advice_clauses(), joined by "; ".
[[nodiscard]] std::string advice(const PlanSetting& setting, const PlanRows& rows);

// The keys to set in the daemons' configuration.
struct PlanConfiguration {
  std::string codec;       // "codec: auto:2^-10"
  std::string strategies;  // "strategies: [ring, direct]"; "": nothing to set
};
// Returns the keys with which operations use `codec` by the strategies `ways` ("ring+direct"). `allowed` has the
// strategies that the daemons allow. If it is empty, they are not known, and the default strategies are assumed.
[[nodiscard]] PlanConfiguration configuration_of(const std::string& codec, const std::string& ways,
                                                 const std::vector<std::string>& allowed);
// Returns the keys of configuration_of(), joined by " and ". If there is nothing to set for strategies, returns only
// the codec's.
[[nodiscard]] std::string configuration_text(const std::string& codec, const std::string& ways,
                                             const std::vector<std::string>& allowed);

}  // namespace gradlane
