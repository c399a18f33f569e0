// report.h - what `gradlane loopback` prints: a line per second, a table at the end, JSON
#pragma once

#include <string>

#include "dataplane/loopback/loopback.h"
#include "tools/loopback/plan.h"

namespace gradlane {

// How long it ran.
struct LoopbackTime {
  double seconds = 0;
  double cpu = 0;  // of those, the CPU time of the thread
};

// Rates over a stretch of time.
struct LoopbackRates {
  double mpps = 0;               // packets received, both ports
  double gbps = 0;               // bits of their frames
  double cycles_per_packet = 0;  // while packets moved
  double busy = 0;               // share of the time in which they did
  double recode_gbps = 0;        // mode codec: of fp32
  double operations = 0;         // mode ring: per second,
  double algbw = 0;              //   and bytes of tensors, in Gb/s
};
[[nodiscard]] LoopbackRates loopback_rates(const LoopbackPlan& plan, const LoopbackFigures& before,
                                           const LoopbackFigures& after, double seconds);

void print_loopback_head(const LoopbackPlan& plan);
void print_loopback_line(const LoopbackPlan& plan, double at, const LoopbackRates& rates,
                         const LoopbackFigures& figures);
void print_loopback_table(const LoopbackPlan& plan, const LoopbackFigures& figures, const LoopbackTime& time);
[[nodiscard]] std::string loopback_json(const LoopbackPlan& plan, const LoopbackFigures& figures,
                                        const LoopbackTime& time);

}  // namespace gradlane
