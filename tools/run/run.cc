// run.cc - `gradlane run`: a ring of node daemons on this machine, and the trainers that use it
#include "tools/run/run.h"

#include <csignal>
#include <cstdio>

#include "tools/run/child.h"
#include "tools/run/files.h"
#include "tools/run/job.h"
#include "tools/run/settings.h"

namespace gradlane {

int run_nodes(const RunOptions& options) {
  const RunSettings plan = make_run_settings(options);
  if (!plan.command.empty()) {
    const int fault = command_fault(plan.command.front());
    if (fault != 0) {
      std::fprintf(stderr, "gradlane: %s: %s\n", plan.command.front().c_str(),
                   fault == 127 ? "there is no such command" : "not executable");
      return fault;
    }
  }
  open_standard_descriptors();
  std::signal(SIGPIPE, SIG_IGN);
  const RunFiles files(plan);
  RunJob job(plan, files);
  return job.run();
}

}  // namespace gradlane
