// exchange.h - `gradlane bench exchange`: cost of a hop of the exchange per packet, without I/O
#pragma once

#include <string>
#include <vector>

namespace gradlane {

// The options as the user wrote them. Empty ones stand for the defaults.
struct ExchangeBenchOptions {
  std::vector<std::string> codecs;
  std::string mtu;    // MTU of IP
  std::string burst;  // packets between two polls
  bool quick = false;
  bool trace = false;
  bool json = false;
};

// Measures and prints to standard output. Throws SetupError for unknown codecs and unusable sizes.
void run_exchange_bench(const ExchangeBenchOptions& options);

}  // namespace gradlane
