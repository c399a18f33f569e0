// setup.h - `gradlane accelerator up` and `down`: a host's network over an accelerator (main thread only)
#pragma once

#include <string>

namespace gradlane {

struct AcceleratorSetupOptions {
  enum class Command { kNone, kUp, kDown };
  Command command = Command::kNone;  // what the command line asks for
  std::string config;                // a file
};

// The exit status. Throws SetupError.
int run_accelerator_setup(const AcceleratorSetupOptions& options);

}  // namespace gradlane
