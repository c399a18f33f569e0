// accelerator_counters.cc - what an accelerator's counters count, by their names in its document
#include "dataplane/accelerator/engine/bundle.h"
#include "dataplane/accelerator/engine/counters.h"
#include "dataplane/accelerator/engine/tcp_streams.h"
#include "tools/stats/accelerator.h"

namespace gradlane {

const std::vector<CounterText>& accelerator_counters() {
  static const std::vector<CounterText> counters = {
#define GRADLANE_STATS_TEXT(symbol, name, help) {name, help},
      GRADLANE_ACCELERATOR_COUNTERS(GRADLANE_STATS_TEXT)
#undef GRADLANE_STATS_TEXT
#define GRADLANE_STATS_TEXT(symbol, name, help) {"bundle_" name, help},
          GRADLANE_BUNDLE_FAULTS(GRADLANE_STATS_TEXT)
#undef GRADLANE_STATS_TEXT
#define GRADLANE_STATS_TEXT(symbol, name, help) {name, help},
              GRADLANE_STREAM_COUNTERS(GRADLANE_STATS_TEXT) GRADLANE_STREAM_GAUGES(GRADLANE_STATS_TEXT)
#undef GRADLANE_STATS_TEXT
  };
  return counters;
}

}  // namespace gradlane
