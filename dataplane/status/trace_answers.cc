// trace_answers.cc - answers to requests of `gradlane trace` (control thread only)
#include "dataplane/status/trace_answers.h"

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "config/values.h"
#include "dataplane/device/eal.h"
#include "dataplane/node/node.h"

namespace gradlane {
namespace {

using nlohmann::json;

constexpr int kTraceFormat = 1;

// Returns the kernel's boot id. Processes with the same id have the same monotonic clock, except in different time
// namespaces.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

// Readings of the clocks at one moment. They are read several times; the fastest reading counts.
struct Clocks {
  int64_t own = 0;
  int64_t monotonic = 0;
  int64_t wall = 0;
  int64_t spread = 0;
};
Clocks clocks() {
  const auto nanos = [](auto time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  };
  Clocks best;
  for (int i = 0; i < 8; ++i) {
    Clocks it;
    it.monotonic = nanos(std::chrono::steady_clock::now());
    it.own = static_cast<int64_t>(clock_now());
    it.wall = nanos(std::chrono::system_clock::now());
    it.spread = nanos(std::chrono::steady_clock::now()) - it.monotonic;
    if (i == 0 || it.spread < best.spread) best = it;
  }
  return best;
}

json facts_of(const Node& node) {
  const Clocks now = clocks();
  return {{"format", kTraceFormat},
          {"node", node.config().rank},
          {"nodes", node.config().nodes.size()},
          {"ranks_per_node", ranks_per_node(node.config())},
          {"boot", boot_id()},
          {"clock_ns", now.own},
          {"monotonic_ns", now.monotonic},
          {"wall_ns", now.wall},
          {"spread_ns", now.spread}};
}

std::string fetched(Node& node, bool on) {
  bool more = false;
  json document = facts_of(node);
  document["lanes"] = json::array();
  for (NodeTrace::Part& part : node.trace().take(more)) {
    document["lanes"].push_back({{"rank", part.rank},
                                 {"lane", part.lane},
                                 {"dropped", part.dropped},
                                 {"skipped", part.skipped},
                                 {"words", std::move(part.words)}});
  }
  document["more"] = more;
  document["on"] = on;
  return admin_text(document);
}

// Returns the number in "trace VERB NUMBER"; none if the verb is another one.
std::optional<uint64_t> number_behind(std::string_view request, std::string_view verb) {
  if (!request.starts_with(verb)) return std::nullopt;
  return parse_whole(request.substr(verb.size()));
}

}  // namespace

AdminAnswer answer_trace(Node& node, const std::string& request, Nanos now) {
  if (request == "trace start") {
    json document = facts_of(node);
    document["trace"] = node.trace().start(now);
    return {admin_text(document), {}};
  }
  const auto fetch = number_behind(request, "trace fetch ");
  const auto stop = number_behind(request, "trace stop ");
  if (!fetch && !stop) {
    return {admin_error("unknown request; allowed: trace start, trace fetch NUMBER, trace stop NUMBER"), {}};
  }
  if (!node.trace().renew(fetch ? *fetch : *stop, now)) return {admin_error("this trace has ended"), {}};
  if (fetch) return {fetched(node, node.trace().on()), {}};
  const bool on = node.trace().on();
  node.trace().stop();
  return {"", [&node, on]() -> std::optional<std::string> {
            if (!node.trace().over()) return std::nullopt;
            return fetched(node, on);
          }};
}

}  // namespace gradlane
