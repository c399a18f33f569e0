// counters.cc - names and help texts of all counters in an accelerator's document
#include "dataplane/accelerator/engine/counters.h"
#include "dataplane/accelerator/commands/stats.h"
#include "dataplane/accelerator/engine/bundle.h"
#include "dataplane/accelerator/engine/tcp_streams.h"

namespace gradlane {

const std::vector<CounterText>& accelerator_counters() {
  static const std::vector<CounterText> counters = [] {
    std::vector<CounterText> all;
    const auto add = [&all](const auto& row) { all.push_back({row.name, row.help}); };
    for_each_counter<accel::Counter>(add);
    for_each_counter<accel::BundleFault>([&](const auto& row) {
      if (row.counter != accel::BundleFault::kNone) add(row);
    });
    for_each_counter<accel::StreamFigure>(add);
    return all;
  }();
  return counters;
}

}  // namespace gradlane
