// figures.h - an accelerator's figures at one moment (control thread only)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/counter_set.h"
#include "config/accelerator.h"
#include "dataplane/accelerator/kernel/port_hold.h"
#include "dataplane/accelerator/watch.h"
#include "dataplane/accelerator/worker.h"
#include "dataplane/device/port.h"
#include "dataplane/status/process_figures.h"

namespace gradlane {

// The objects from which the figures are collected.
struct AcceleratorParts {
  const AcceleratorConfig& config;
  const ProcessFacts& process;
  const Port& host;
  const Port& wire;
  const AcceleratorWorker& worker;
  const AcceleratorWatch& watch;
  const PortHold& hold;
};

struct SideFigures {
  std::string device;
  uint64_t missed = 0;  // frames that the device missed
  Port::Superpackets superpackets;
  bool link_up = false;
  std::vector<CounterValue> counters;
};

struct PeerFigures {
  std::string ip;
  const char* state = "";  // asked, answers, silent, blocked
  uint64_t compressed = 0;
  uint64_t uncompressed = 0;
  double used_s_ago = 0;
};

struct AcceleratorFigures {
  ProcessFigures process;
  AcceleratorConfig config;
  SideFigures host, wire;
  std::vector<CounterValue> counters;
  CounterSet<accel::StreamFigure> streams;  // figures of streams, which are also in `counters`
  std::vector<PeerFigures> peers;
  bool kernel_kept_off = false;
  bool bypass_in_place = false;
  std::vector<AcceleratorAdvice> advice;
};

// Collects the figures. The worker's figures are up to 100 ms old.
[[nodiscard]] AcceleratorFigures accelerator_figures(const AcceleratorParts& parts);

}  // namespace gradlane
