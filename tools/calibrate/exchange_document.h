// exchange_document.h - what gradlane.torch.exchange_times prints (no I/O)
#pragma once

#include <string>
#include <vector>

#include "collectives/cost/calibration.h"

namespace gradlane {

inline constexpr const char* kExchangeModule = "gradlane.torch.exchange_times";

// The result of gradlane.torch.exchange_times.
struct ExchangeTimes {
  std::vector<MeasuredExchange> exchanges;
  double cores = 0;       // cores of this machine for each of its ranks
  double background = 0;  // cores of this machine that worked while its ranks slept
};

// Reads what the module prints. Throws SetupError if the text is something else.
[[nodiscard]] ExchangeTimes parse_exchange_times(const std::string& text);

}  // namespace gradlane
