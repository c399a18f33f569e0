// left_out.cc - the commands of a build without accelerator mode (-Daccelerator=false)
#include "base/error.h"
#include "dataplane/accelerator/commands/check.h"
#include "dataplane/accelerator/commands/cli.h"
#include "dataplane/accelerator/commands/stats.h"

namespace gradlane {
namespace {

constexpr const char* kLeftOut = "this gradlane was built without accelerator mode (-Daccelerator=false)";

}  // namespace

void add_accelerator(CLI::App&, AcceleratorSetupOptions&) {}

int run_accelerator_setup(const AcceleratorSetupOptions&) { throw SetupError(kLeftOut); }

void check_accelerator(const AcceleratorConfig&, std::chrono::milliseconds, CheckReport& report,
                       const std::function<void()>&, nlohmann::json&) {
  report.fail("accelerator", kLeftOut, "use a build with -Daccelerator=true");
}

Lines accelerator_lines(const StatsLooks&, bool) { return {kLeftOut}; }

}  // namespace gradlane
