// exchange_times.h - all-reduces through PyTorch, which a child process measures (main thread only)
#pragma once

#include <string>
#include <vector>

#include "tools/calibrate/exchange_document.h"

namespace gradlane {

// One rank's run of the module.
struct ExchangeRun {
  std::string python;                       // program, looked up in PATH
  std::vector<std::string> variables = {};  // "NAME=value"
  bool quick = false;
};

// Returns why Python cannot import the module, for example because there is no PyTorch. Returns "" if it can.
[[nodiscard]] std::string import_fault(const ExchangeRun& run);

// Measures together with all other ranks. Throws SetupError if the child fails or takes too long; it has ended then. It
// also ends if this process is killed.
[[nodiscard]] ExchangeTimes run_exchange_times(const ExchangeRun& run);

}  // namespace gradlane
