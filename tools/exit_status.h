// exit_status.h - exit statuses of gradlane and gradlaned, and what they mean in docs/errors.md
#pragma once

#include "dataplane/device/port.h"
#include "tools/stats/stats.h"

namespace gradlane {

inline constexpr int kExitFailed = 1;     // what the command does has failed
inline constexpr int kExitBadInput = 2;   // wrong options, or input that cannot be used
inline constexpr int kExitNoDaemon = 3;   // the command needs a daemon, and none answers
inline constexpr int kExitBrokenOff = 4;  // a daemon stopped answering
inline constexpr int kExitPortInUse = 4;  // another process uses a UDP port of the node

struct ExitRow {
  const char* program;
  int status;
  const char* meaning;
};

inline constexpr ExitRow kExitRows[] = {
    {"all", 0, "success"},
    {"all", kExitBadInput, "wrong options, or input that cannot be used"},
    {"gradlaned", 0, "ended by SIGTERM or SIGINT, or after the last process of `--for`"},
    {"gradlaned", kDeviceLostStatus, "a device has gone away"},
    {"gradlaned", kExitPortInUse, "another process uses a UDP port of the node: set `udp_port`"},
    {"check", kExitFailed, "an item has the verdict FAIL"},
    {"key", kExitFailed, "the daemon did not take the key"},
    {"key", kExitNoDaemon, "no daemon answers"},
    {"perf", kExitFailed, "results were wrong, or an operation failed"},
    {"plan --calibrate", kExitFailed, "an operation failed, or another rank could not take part"},
    {"run", kExitFailed, "a daemon ended, failed while it was stopped, or was not ready in time"},
    {"run", 126, "the command is not executable"},
    {"run", 127, "there is no such command"},
    {"run", 128, "plus the number of a signal: the signal ended a trainer or `gradlane run`; 130 is Ctrl-C"},
    {"sim", kExitFailed, "results were wrong, or an operation failed"},
    {"stats", kStatsNoDaemon, "no daemon answers"},
    {"stats", kStatsRing, "the ring is not ready"},
    {"stats", kStatsFailing, "operations have failed within the last minute"},
    {"stats", kStatsKernel, "the kernel also takes an accelerator's packets"},
    {"stats", kStatsUnsettled, "with `--freeze`: nothing is settled yet"},
    {"top", kExitNoDaemon, "no daemon answers"},
    {"trace", kExitNoDaemon, "no daemon answers, or another trace is running"},
    {"trace", kExitBrokenOff, "a daemon stopped answering"},
};

}  // namespace gradlane
