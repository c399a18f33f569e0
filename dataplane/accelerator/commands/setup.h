// setup.h - `gradlane accelerator up` and `down`, which route a host's network through an accelerator (main thread
// only)
#pragma once

#include <string>

namespace gradlane {

struct AcceleratorSetupOptions {
  enum class Command { kNone, kUp, kDown };
  Command command = Command::kNone;  // command that the user asked for
  std::string config;                // path of the configuration
};

// Runs the command. Returns the exit status. Throws SetupError.
int run_accelerator_setup(const AcceleratorSetupOptions& options);

}  // namespace gradlane
