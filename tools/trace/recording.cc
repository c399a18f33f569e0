// recording.cc - conversion of daemons' answers to records (main thread, or one thread for each daemon)
#include "tools/trace/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "tools/admin/json_fields.h"

namespace gradlane {
namespace {

constexpr uint64_t kFormat = 1;

LaneRecording& lane_of(NodeRecording& node, unsigned rank, unsigned lane) {
  const auto it = std::ranges::find_if(
      node.lanes, [&](const LaneRecording& each) { return each.rank == rank && each.lane == lane; });
  if (it != node.lanes.end()) return *it;
  LaneRecording& made = node.lanes.emplace_back();
  made.rank = rank;
  made.lane = lane;
  return made;
}

// Reads the words of a record that this program knows: later versions may have more. Ignores a record that is too
// short, as it has another format.
template <class Record>
void add(std::vector<Record>& to, std::span<const uint64_t> words) {
  std::array<uint64_t, sizeof(Record) / sizeof(uint64_t)> known{};
  if (words.size() < known.size()) return;
  std::copy_n(words.begin(), known.size(), known.begin());
  to.push_back(std::bit_cast<Record>(known));
}

void add_words(LaneRecording& lane, std::span<const uint64_t> words) {
  while (!words.empty()) {
    const size_t length = words[0] >> 8 & 0xff;
    if (length == 0 || length > words.size()) throw SetupError("a daemon's trace is damaged");
    const std::span record = words.first(length);
    switch (static_cast<TraceKind>(words[0] & 0xff)) {
      case TraceKind::kOperation:
        add(lane.operations, record);
        break;
      case TraceKind::kHop:
        add(lane.hops, record);
        break;
      case TraceKind::kWait:
        add(lane.waits, record);
        break;
      case TraceKind::kPacket:
        add(lane.packets, record);
        break;
      case TraceKind::kLink:
        add(lane.links, record);
        break;
    }
    words = words.subspan(length);
  }
}

// Calls change(time) for each time in a node's records.
template <class Change>
void for_times(NodeRecording& node, Change change) {
  for (LaneRecording& lane : node.lanes) {
    for (TraceOperation& it : lane.operations) {
      for (Nanos* const time : {&it.asked, &it.gathered, &it.submitted, &it.started, &it.ready, &it.ended})
        change(*time);
    }
    for (TraceHop& it : lane.hops) {
      change(it.first);
      change(it.last);
    }
    for (TraceWait& it : lane.waits) {
      change(it.since);
      change(it.until);
    }
    for (TracePacket& it : lane.packets) change(it.at);
  }
}

}  // namespace

int64_t unite(std::vector<NodeRecording>& nodes) {
  constexpr int64_t kBefore = 1000;
  int64_t first = INT64_MAX;
  for (NodeRecording& node : nodes) {
    for_times(node, [&](Nanos time) {
      if (time != 0) first = std::min(first, node.clock.at(static_cast<int64_t>(time)));
    });
  }
  for (NodeRecording& node : nodes) {
    for_times(node, [&](Nanos& time) {
      if (time != 0) time = static_cast<Nanos>(node.clock.at(static_cast<int64_t>(time)) - first + kBefore);
    });
  }
  return first == INT64_MAX ? 0 : first - kBefore;
}

void add_answer(NodeRecording& node, const nlohmann::json& answer, int64_t asked, int64_t answered) {
  if (number_at(answer, "format") != kFormat) {
    throw SetupError(fmt::format("the daemon at {} has another version than this program", node.path));
  }
  node.node = static_cast<unsigned>(number_at(answer, "node"));
  node.nodes = static_cast<unsigned>(number_at(answer, "nodes"));
  node.ranks_per_node = std::max(1U, static_cast<unsigned>(number_at(answer, "ranks_per_node")));
  node.boot = text_at(answer, "boot");
  const auto time = [&](const char* key) { return static_cast<int64_t>(number_at(answer, key)); };
  node.readings.push_back({.asked = asked,
                           .answered = answered,
                           .own = time("clock_ns"),
                           .monotonic = time("monotonic_ns"),
                           .wall = time("wall_ns"),
                           .spread = time("spread_ns")});
  for (const nlohmann::json& part : list_at(answer, "lanes")) {
    LaneRecording& lane =
        lane_of(node, static_cast<unsigned>(number_at(part, "rank")), static_cast<unsigned>(number_at(part, "lane")));
    lane.dropped = number_at(part, "dropped");
    lane.skipped = number_at(part, "skipped");
    add_words(lane, list_at(part, "words").get<std::vector<uint64_t>>());
  }
}

}  // namespace gradlane
