// report.h - output of `gradlane loopback`: a line per second, a table at the end, JSON
#pragma once

#include <string>

#include "dataplane/loopback/loopback.h"
#include "tools/loopback/settings.h"

namespace gradlane {

// The duration of a run.
struct LoopbackTime {
  double seconds = 0;
  double cpu = 0;  // CPU time of the thread, in s
};

// Rates over an interval.
struct LoopbackRates {
  double mpps = 0;               // packets received on both ports
  double gbps = 0;               // Gb/s of the frames of these packets
  double cycles_per_packet = 0;  // counted only while packets moved
  double busy = 0;               // share of the time in which packets moved
  double recode_gbps = 0;        // mode codec: Gb/s of fp32
  double operations = 0;         // mode ring: all-reduces per second
  double algbw = 0;              // mode ring: Gb/s of tensors
};
[[nodiscard]] LoopbackRates loopback_rates(const LoopbackSettings& plan, const LoopbackFigures& before,
                                           const LoopbackFigures& after, double seconds);

void print_loopback_head(const LoopbackSettings& plan);
void print_loopback_line(const LoopbackSettings& plan, double at, const LoopbackRates& rates,
                         const LoopbackFigures& figures);
void print_loopback_table(const LoopbackSettings& plan, const LoopbackFigures& figures, const LoopbackTime& time);
[[nodiscard]] std::string loopback_json(const LoopbackSettings& plan, const LoopbackFigures& figures,
                                        const LoopbackTime& time);

}  // namespace gradlane
