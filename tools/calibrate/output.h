// output.h - output of `gradlane plan --calibrate`: a table, or JSON
#pragma once

#include <span>
#include <string>

#include "collectives/cost/calibration.h"
#include "tools/calibrate/ring_speed.h"

namespace gradlane {

// Prints the tables. `ring`: links and packets were measured, too.
void print_calibration(const Calibration& calibration, bool ring, std::span<const CheckedTime> checked);

// Returns one line of JSON; docs/plan.md describes the fields.
[[nodiscard]] std::string to_json(const Calibration& calibration, bool ring, std::span<const CheckedTime> checked,
                                  const std::string& file);

}  // namespace gradlane
