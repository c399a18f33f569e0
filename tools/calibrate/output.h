// output.h - output of `gradlane plan --calibrate`: a table, or JSON
#pragma once

#include <string>
#include <vector>

#include "collectives/cost/calibration.h"
#include "tools/calibrate/ring_speed.h"

namespace gradlane {

struct CalibrationResult {
  Calibration calibration;
  bool ring = false;  // links and packets were measured, too
  std::vector<CheckedTime> checked = {};
  std::string exchanges_fault = {};  // why nothing was measured through PyTorch; "": it was, or nobody wanted it
  std::string file = {};             // path of the file; "": this rank has written none
};

// Prints the tables.
void print_calibration(const CalibrationResult& result);

// Returns one line of JSON; docs/plan.md describes the fields.
[[nodiscard]] std::string to_json(const CalibrationResult& result);

}  // namespace gradlane
