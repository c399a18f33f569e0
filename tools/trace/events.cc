// events.cc - a trace as trace events, which Perfetto and chrome://tracing read (no I/O)
#include "tools/trace/events.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "collectives/operation.h"
#include "collectives/wire.h"
#include "tools/trace/packets.h"
#include "tools/trace/rows.h"
#include "tools/trace/words.h"

namespace gradlane {
namespace {

using nlohmann::json;

// Numbers of threads, in the order in which they are shown.
constexpr unsigned kThreads = 100'000;  // numbers that each rank and lane has for its threads
// number of the first thread for spans of trainers, after those of all lanes
constexpr unsigned kTrainers = 1'000'000'000;
constexpr unsigned kOperations = 1;
constexpr unsigned kLinks = 1000;  // number of the first thread (a row in the viewer) for data to and from neighbours
constexpr unsigned kPackets = 50'000;  // number of the first thread for packets, which are sorted by receiver
constexpr unsigned kRowsOfLink = 64;   // most rows for a link; spans that need more are left out
static_assert(kLinks + (2 * kMaxWorld + 1) * kRowsOfLink <= kPackets && kPackets + kMaxWorld * kRowsOfLink <= kThreads);

// Formats nanoseconds as microseconds with three decimals.
std::string micros(uint64_t nanos) { return fmt::format("{}.{:03}", nanos / 1000, nanos % 1000); }
double micros_of(uint64_t nanos) { return static_cast<double>(nanos) / 1000; }

// Returns an id that is the same at both ends of a flow. It is below 2^53, so that a number in JSON can hold it.
uint64_t flow_id(std::initializer_list<uint64_t> parts) {
  uint64_t hash = 14695981039346656037U;
  for (const uint64_t part : parts) hash = (hash ^ part ^ (part >> 32)) * 1099511628211U;
  return hash >> 12 | 1;
}

class Events {
 public:
  Events(std::span<const NodeRecording> nodes, std::span<const TrainerSpan> spans) : nodes_(nodes), spans_(spans) {}

  std::string take(const json& other) {
    for (const NodeRecording& node : nodes_) add_node(node);
    add_packets();
    add_trainers();
    return fmt::format("{{\"displayTimeUnit\":\"ms\",\"otherData\":{},\n\"traceEvents\":[\n{}\n]}}\n", other.dump(),
                       text_);
  }

 private:
  void put(std::string_view event) {
    if (!text_.empty()) text_ += ",\n";
    text_ += event;
  }
  void name(unsigned pid, unsigned tid, const std::string& text) {
    put(fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", pid, tid,
                    json(text).dump()));
    put(fmt::format(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})", pid, tid,
                    tid));
  }
  void span(unsigned pid, unsigned tid, const char* category, const std::string& text, uint64_t begin, uint64_t end,
            const json& args) {
    put(fmt::format(R"({{"ph":"X","cat":"{}","name":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{}}})", category,
                    json(text).dump(), pid, tid, micros(begin), micros(end - begin), args.dump()));
  }
  void flow(char phase, unsigned pid, unsigned tid, uint64_t id, uint64_t at) {
    put(fmt::format(R"({{"ph":"{}","cat":"hop","name":"hop","id":{},"pid":{},"tid":{},"ts":{}{}}})", phase, id, pid,
                    tid, micros(at), phase == 'f' ? R"(,"bp":"e")" : ""));
  }

  void add_node(const NodeRecording& node) {
    put(fmt::format(R"({{"ph":"M","name":"process_name","pid":{0},"args":{{"name":"node {0}"}}}})", node.node));
    put(fmt::format(R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})", node.node));
    for (const LaneRecording& lane : node.lanes) {
      add_operations(node, lane);
      add_hops(node, lane);
    }
  }
  static unsigned thread_of(const NodeRecording& node, unsigned rank, unsigned lane) {
    return (lane * node.ranks_per_node + rank % node.ranks_per_node) * kThreads;
  }
  std::string title(const NodeRecording& node, const LaneRecording& lane) const {
    const std::string text = fmt::format("lane {}", lane.lane);
    return node.ranks_per_node == 1 ? text : fmt::format("rank {} {}", lane.rank, text);
  }
  void add_operations(const NodeRecording& node, const LaneRecording& lane);
  void add_waits(const NodeRecording& node, const LaneRecording& lane, unsigned base);
  void add_hops(const NodeRecording& node, const LaneRecording& lane);
  void add_hop(const NodeRecording& node, const LaneRecording& lane, const TraceHop& hop, unsigned thread);
  void add_packets();
  void add_trainers();

  using Key = std::pair<uint64_t, uint64_t>;  // session and number of an operation
  const std::span<const NodeRecording> nodes_;
  const std::span<const TrainerSpan> spans_;
  // State of the current lane: threads of its operations, and operations that are in the trace from their beginning.
  std::map<Key, unsigned> rows_;
  std::set<Key> whole_;
  std::string text_;
};

void Events::add_operations(const NodeRecording& node, const LaneRecording& lane) {
  std::vector<const TraceOperation*> sorted;
  for (const TraceOperation& it : lane.operations) sorted.push_back(&it);
  std::ranges::sort(sorted, {}, [](const TraceOperation* it) { return it->asked; });
  const unsigned base = thread_of(node, lane.rank, lane.lane) + kOperations;
  rows_.clear();
  whole_.clear();
  Rows rows;
  for (const TraceOperation* it : sorted) {
    const auto thread = static_cast<unsigned>(base + rows.take(it->asked, it->ended));
    rows_[{it->session, it->number}] = thread;
    if ((it->flags & TraceOperation::kCut) == 0) whole_.emplace(it->session, it->number);
    json args = {{"number", it->number},
                 {"session", it->session},
                 {"lane", lane.lane},
                 {"rank", lane.rank},
                 {"bytes", it->bytes},
                 {"sent_bytes", it->sent},
                 {"encode_us", micros_of(it->encode)},
                 {"add_us", micros_of(it->add)},
                 {"decode_us", micros_of(it->decode)}};
    for (size_t cause = 0; cause < kTraceCauses; ++cause) {
      args["waited_us"][cause_name(static_cast<TraceCause>(cause))] = micros_of(it->waited[cause]);
    }
    if (const uint64_t code = it->what >> 32 & 0xff; code != 0) args["failed"] = code;
    if ((it->flags & TraceOperation::kCut) != 0) args["began_before_the_trace"] = true;
    if ((it->flags & TraceOperation::kOpen) != 0) args["not_over_at_its_end"] = true;
    span(node.node, thread, "operation", operation_text(*it), it->asked, it->ended, args);
    if (it->submitted > it->asked) {
      span(node.node, thread, "queued", "queued", it->asked, it->submitted, json::object());
      if (it->gathered > it->asked && it->gathered <= it->submitted) {
        const uint64_t last = it->flags >> 8;
        const std::string whom = last == 0 ? "other trainers" : fmt::format("trainer of rank {}", last - 1);
        span(node.node, thread, "queued", whom, it->asked, it->gathered, json::object());
      }
    }
  }
  for (unsigned row = 0; row < rows.count(); ++row) {
    name(node.node, base + row,
         title(node, lane) + (row == 0 ? ": operations" : fmt::format(": operations {}", row + 1)));
  }
  add_waits(node, lane, base);
}

void Events::add_waits(const NodeRecording& node, const LaneRecording& lane, unsigned base) {
  for (const TraceWait& it : lane.waits) {
    const auto row = rows_.find({it.session, it.number});
    if (row == rows_.end() || row->second < base) continue;  // its operation was dropped
    const auto cause = static_cast<TraceCause>(it.what & 0xff);
    const auto rank = static_cast<unsigned>(it.what >> 8);
    span(node.node, row->second, "wait", cause_text(cause, rank_text(rank, node.ranks_per_node)), it.since, it.until,
         {{"cause", cause_name(cause)}, {"rank", rank}, {"number", it.number}});
  }
}

// Adds the hops of a lane, in rows by neighbour and direction.
void Events::add_hops(const NodeRecording& node, const LaneRecording& lane) {
  std::map<std::pair<unsigned, uint64_t>, std::vector<const TraceHop*>> ways;  // by rank and direction
  for (const TraceHop& it : lane.hops) {
    const bool all = (it.what & TraceHop::kToAll) != 0;
    const auto rank = all ? nodes_.front().nodes * node.ranks_per_node : static_cast<unsigned>(it.what >> 32);
    ways[{rank, it.what & TraceHop::kIn}].push_back(&it);
  }
  unsigned thread = thread_of(node, lane.rank, lane.lane) + kLinks;
  for (auto& [way, hops] : ways) {
    std::ranges::sort(hops, {}, [](const TraceHop* it) { return it->first; });
    Rows rows;
    for (const TraceHop* it : hops) {
      const size_t row = rows.take(it->first, it->last + 1);
      if (row < kRowsOfLink) add_hop(node, lane, *it, thread + static_cast<unsigned>(row));
    }
    const bool all = (hops.front()->what & TraceHop::kToAll) != 0;
    const std::string whom = all ? "all" : rank_text(way.first, node.ranks_per_node);
    for (unsigned row = 0; row < std::min<size_t>(rows.count(), kRowsOfLink); ++row) {
      name(node.node, thread + row, fmt::format("{}: {} {}", title(node, lane), way.second != 0 ? "from" : "to", whom));
    }
    thread += kRowsOfLink;
  }
}

void Events::add_hop(const NodeRecording& node, const LaneRecording& lane, const TraceHop& hop, unsigned thread) {
  const bool in = (hop.what & TraceHop::kIn) != 0;
  const bool all = (hop.what & TraceHop::kToAll) != 0;
  const bool gather = (hop.what & TraceHop::kGather) != 0;
  const uint64_t stage = hop.what >> 8 & 0xff;
  const uint64_t block = hop.what >> 16 & 0xffff;
  const uint64_t peer = hop.what >> 32;
  span(node.node, thread, "hop", fmt::format("{} of block {}", gather ? "result" : "sum", block), hop.first,
       hop.last + 1,
       {{"number", hop.number},
        {"session", hop.session},
        {"lane", lane.lane},
        {"stage", stage},
        {"block", block},
        {"from", in ? peer : lane.rank},
        {"to", in ? lane.rank : peer},
        {"to_all", all},
        {"runs", hop.runs},
        {"bytes", hop.bytes}});
  // If the operation began before the trace, the first arrival and the first sending on record may be of different
  // packets.
  if (!whole_.contains({hop.session, hop.number})) return;
  const auto id = [&](uint64_t from, uint64_t to) {
    return flow_id({hop.session, hop.number, lane.lane, stage, block, uint64_t{gather}, from, to});
  };
  if (in) return flow('f', node.node, thread, id(peer, lane.rank), hop.first);
  if (!all) return flow('s', node.node, thread, id(lane.rank, peer), hop.first);
  for (uint64_t rank = 0; rank < uint64_t{node.nodes} * node.ranks_per_node; ++rank) {
    if (rank != lane.rank) flow('s', node.node, thread, id(lane.rank, rank), hop.first);
  }
}

// Adds sampled packets, each as a span on the sender's side.
void Events::add_packets() {
  std::map<std::tuple<unsigned, unsigned, unsigned>, Rows> rows;  // by lane and ranks
  for (const SampledPacket& it : sampled_packets(nodes_)) {
    const NodeRecording& node = *it.node;
    const uint64_t end = std::max(it.came, it.sent) + 1;
    const unsigned thread = thread_of(node, it.from, it.lane) + kPackets + it.to * kRowsOfLink;
    Rows& of = rows[{it.lane, it.from, it.to}];
    const size_t known = of.count();
    const size_t row = of.take(it.sent, end);
    if (row >= kRowsOfLink) continue;
    if (of.count() != known) {
      name(node.node, thread + static_cast<unsigned>(row),
           fmt::format("lane {}: packets to {}", it.lane, rank_text(it.to, node.ranks_per_node)));
    }
    span(node.node, thread + static_cast<unsigned>(row), "packet",
         it.came == 0 ? "lost, or still on its way" : "packet", it.sent, end,
         {{"sequence", it.sequence}, {"bytes", it.bytes}, {"from", it.from}, {"to", it.to}, {"lane", it.lane}});
  }
}

// Adds the spans of trainers in rows by rank and category, in the order of their beginnings.
void Events::add_trainers() {
  std::map<std::pair<unsigned, std::string>, Rows> rows;
  std::map<unsigned, unsigned> threads;  // number of threads of each rank
  std::map<std::tuple<unsigned, std::string, size_t>, unsigned> thread_of_row;
  for (const TrainerSpan& it : spans_) {
    const unsigned per_node = nodes_.front().ranks_per_node;
    const unsigned pid = it.rank / per_node;
    const size_t row = rows[{it.rank, it.category}].take(it.begin, it.end);
    const auto [place, added] = thread_of_row.try_emplace({it.rank, it.category, row}, 0);
    if (added) {
      place->second = kTrainers + it.rank % per_node * kThreads + threads[it.rank]++;
      name(pid, place->second, fmt::format("trainer {}: {}", it.rank, it.category));
    }
    span(pid, place->second, "trainer", it.name, it.begin, it.end, {{"rank", it.rank}, {"category", it.category}});
  }
}

json other_data(std::span<const NodeRecording> nodes, const std::string& version) {
  json other = {{"gradlane", version}, {"nodes_of_ring", nodes.empty() ? 0 : nodes.front().nodes}};
  double error = 0;
  for (const NodeRecording& node : nodes) {
    uint64_t dropped = 0;
    uint64_t skipped = 0;
    for (const LaneRecording& lane : node.lanes) {
      dropped += lane.dropped;
      skipped += lane.skipped;
    }
    error = std::max(error, node.clock.error);
    json about = {{"node", node.node},
                  {"clock_error_us", node.clock.error / 1000},
                  {"clock_offset_us", static_cast<double>(node.clock.offset) / 1000},
                  {"clock_rate_ppm", (node.clock.rate - 1) * 1e6},
                  {"records_dropped", dropped},
                  {"operations_left_out", skipped}};
    if (!node.missing.empty()) about["broke_off"] = node.missing;
    other["nodes"].push_back(std::move(about));
  }
  other["clock_error_us"] = 2 * error / 1000;  // between two nodes
  return other;
}

}  // namespace

std::string trace_events(std::span<const NodeRecording> nodes, std::span<const TrainerSpan> spans,
                         const std::string& version) {
  return Events(nodes, spans).take(other_data(nodes, version));
}

}  // namespace gradlane
