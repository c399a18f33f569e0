// counters.cc - what counters count, by their names in the daemon's document
#include <array>
#include <map>

#include "collectives/counters.h"
#include "dataplane/frame/frame.h"
#include "dataplane/lane/port_queue.h"
#include "tools/stats/table.h"

namespace gradlane {
namespace {

std::map<std::string, const char*> all_texts() {
  std::map<std::string, const char*> texts = {
#define GRADLANE_STATS_TEXT(symbol, name, help) {name, help},
      GRADLANE_QUEUE_COUNTERS(GRADLANE_STATS_TEXT)
#undef GRADLANE_STATS_TEXT
  };
  for (size_t i = 0; i < static_cast<size_t>(FrameVerdict::kCount); ++i) {
    const auto verdict = static_cast<FrameVerdict>(i);
    texts.emplace(frame_verdict_name(verdict), frame_verdict_help(verdict));
  }
  texts.emplace(traffic_class_name(TrafficClass::kCompressed), "packets received with the ToS of compressed data");
  texts.emplace(traffic_class_name(TrafficClass::kRaw), "packets received with the ToS of other data");
  texts.emplace(traffic_class_name(TrafficClass::kControl), "packets received with the ToS of control");
  for (size_t i = 0; i < kCounters; ++i) {
    const auto counter = static_cast<Counter>(i);
    texts.emplace(counter_name(counter), counter_help(counter));
  }
  return texts;
}

}  // namespace

const char* counter_text(const std::string& name) {
  static const std::map<std::string, const char*> texts = all_texts();
  const auto it = texts.find(name);
  return it == texts.end() ? "" : it->second;
}

}  // namespace gradlane
