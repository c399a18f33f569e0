// output.h - what `gradlane plan --calibrate` prints: a table, or JSON
#pragma once

#include <span>
#include <string>

#include "collectives/plan/calibration.h"
#include "tools/calibrate/ring_speed.h"

namespace gradlane {

// `ring`: links and packets were measured, too.
void print_calibration(const Calibration& calibration, bool ring, std::span<const CheckedTime> checked);

// docs/plan.md has the fields. One line.
[[nodiscard]] std::string to_json(const Calibration& calibration, bool ring, std::span<const CheckedTime> checked,
                                  const std::string& file);

}  // namespace gradlane
