// setup.h - `gradlane accelerator up` and `down`: a host's network over an accelerator (main thread only)
#pragma once

#include <string>

namespace gradlane {

struct AcceleratorSetupOptions {
  std::string config;
};

// The exit status. Throw SetupError.
int run_accelerator_up(const AcceleratorSetupOptions& options);
int run_accelerator_down(const AcceleratorSetupOptions& options);

}  // namespace gradlane
