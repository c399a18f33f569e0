// auth.h - `gradlane bench auth`: what tags and checksums of packets cost
#pragma once

namespace gradlane {

struct AuthBenchOptions {
  bool quick = false;
  bool json = false;
};

// Measures and prints to standard output. Throws SetupError.
void run_auth_bench(const AuthBenchOptions& options);

}  // namespace gradlane
