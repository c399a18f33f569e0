// process_figures.cc - figures of a daemon's process (control thread only)
#include "dataplane/status/process_figures.h"

#include <unistd.h>

#include <cstdio>

namespace gradlane {
namespace {

uint64_t resident_kb() {
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  unsigned long size = 0;
  unsigned long resident = 0;
  const int read = std::fscanf(file, "%lu %lu", &size, &resident);
  std::fclose(file);
  return read == 2 ? resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / 1024 : 0;
}

}  // namespace

ProcessFigures process_figures(const ProcessFacts& facts) {
  const std::chrono::duration<double> uptime = std::chrono::steady_clock::now() - facts.started;
  return {.version = facts.version, .uptime_s = uptime.count(), .pid = getpid(), .rss_kb = resident_kb()};
}

}  // namespace gradlane
