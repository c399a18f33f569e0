// counters.cc - descriptions of counters, by their names in the daemon's document
#include <map>

#include "collectives/counters.h"
#include "dataplane/frame/frame.h"
#include "dataplane/lane/queue_counters.h"
#include "tools/stats/table.h"

namespace gradlane {
namespace {

// Returns the descriptions by name. If several counters have the same name, the text of the first one counts.
std::map<std::string, const char*> all_texts() {
  std::map<std::string, const char*> texts;
  const auto add = [&texts](const auto& row) { texts.emplace(row.name, row.help); };
  for_each_counter<QueueCounter>(add);
  for_each_counter<FrameVerdict>(add);
  for_each_counter<TrafficClass>(add);
  for_each_counter<Counter>(add);
  return texts;
}

}  // namespace

const char* counter_text(const std::string& name) {
  static const std::map<std::string, const char*> texts = all_texts();
  const auto it = texts.find(name);
  return it == texts.end() ? "" : it->second;
}

}  // namespace gradlane
