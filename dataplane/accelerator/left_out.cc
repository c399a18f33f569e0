// left_out.cc - gradlaned of a build without accelerator mode (-Daccelerator=false)
#include "base/error.h"
#include "dataplane/accelerator/daemon.h"

namespace gradlane {

int run_accelerator(const AcceleratorConfig& config, const std::string&, bool) {
  throw SetupError(config.file + ": mode: accelerator: this gradlaned was built without it (-Daccelerator=false)");
}

}  // namespace gradlane
