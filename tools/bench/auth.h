// auth.h - `gradlane bench auth`: cost of envelopes and checksums of packets
#pragma once

namespace gradlane {

struct AuthBenchOptions {
  bool quick = false;
  bool json = false;
};

// Measures and prints to standard output. Throws SetupError.
void run_auth_bench(const AuthBenchOptions& options);

}  // namespace gradlane
