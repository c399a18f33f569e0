// summary.cc - where the time of operations went, by node and by link, and what delays the ring (pure functions)
#include "tools/trace/summary.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "tools/trace/packets.h"
#include "tools/trace/verdict.h"

namespace gradlane {
namespace {

using Link = std::pair<unsigned, unsigned>;

constexpr auto kFullLink = static_cast<size_t>(TraceCause::kLink);

struct Bounds {
  Nanos first = ~Nanos{0};
  Nanos last = 0;
  [[nodiscard]] double length() const { return last > first ? static_cast<double>(last - first) : 0; }
};

Bounds bounds_of(std::span<const NodeRecording> nodes) {
  Bounds bounds;
  for (const NodeRecording& node : nodes) {
    for (const LaneRecording& lane : node.lanes) {
      for (const TraceOperation& it : lane.operations) {
        bounds.first = std::min(bounds.first, it.asked);
        bounds.last = std::max(bounds.last, it.ended);
      }
    }
  }
  return bounds;
}

// The first request of each operation, by lane, session and number, and how many ranks have requested it.
using OperationKey = std::tuple<unsigned, uint64_t, uint64_t>;
struct Asked {
  Nanos first = ~Nanos{0};
  size_t ranks = 0;
};
std::map<OperationKey, Asked> first_asked(std::span<const NodeRecording> nodes) {
  std::map<OperationKey, Asked> asked;
  for (const NodeRecording& node : nodes) {
    for (const LaneRecording& lane : node.lanes) {
      for (const TraceOperation& it : lane.operations) {
        if ((it.flags & TraceOperation::kCut) != 0) continue;
        Asked& of = asked[{lane.lane, it.session, it.number}];
        of.first = std::min(of.first, it.asked);
        ++of.ranks;
      }
    }
  }
  return asked;
}

// Returns the time in which no operation of a lane was under way.
double idle_of(const LaneRecording& lane, const Bounds& bounds) {
  std::vector<std::pair<Nanos, Nanos>> spans;
  for (const TraceOperation& it : lane.operations) spans.emplace_back(it.asked, it.ended);
  std::ranges::sort(spans);
  double idle = 0;
  Nanos until = bounds.first;
  for (const auto& [begin, end] : spans) {
    if (begin > until) idle += static_cast<double>(begin - until);
    until = std::max(until, end);
  }
  return idle + static_cast<double>(bounds.last - std::min(until, bounds.last));
}

class NodeSums {
 public:
  // `ranks`: number of ranks in all recordings.
  NodeSums(const NodeRecording& node, const Bounds& bounds, const std::map<OperationKey, Asked>& asked, size_t ranks)
      : bounds_(bounds), asked_(asked), ranks_(ranks) {
    sum_.node = node.node;
    sum_.missing = node.missing;
    sum_.idle = node.lanes.empty() ? 0 : 1;
    for (const LaneRecording& lane : node.lanes) add(lane);
  }
  // Returns the summary. Sets `full`: for each link, the share of its sender's operations in which it was full.
  [[nodiscard]] NodeSummary take(std::map<Link, double>& full) {
    const auto count = static_cast<double>(std::max<uint64_t>(sum_.operations, 1));
    const double took = sum_.took > 0 ? sum_.took : 1;
    for (const auto& [link, time] : full_) full[link] = time / std::max(took_[link.first], 1.0);
    for (size_t cause = 0; cause < kTraceCauses; ++cause) {
      sum_.waited[cause] /= took;
      const auto most = std::ranges::max_element(whom_[cause], {}, [](const auto& it) { return it.second; });
      if (most != whom_[cause].end()) sum_.for_whom[cause] = most->first;
    }
    sum_.queued /= took;
    sum_.took /= count;
    for (double* const mean : {&sum_.encode, &sum_.add, &sum_.decode}) *mean /= count;
    for (const auto& [rank, of] : late_) {
      const double mean = of.time / static_cast<double>(of.operations);
      if (mean < sum_.late) continue;
      sum_.late = mean;
      sum_.latest_rank = rank;
    }
    for (const auto& [rank, time] : awaited_) {
      const double mean = time / count;
      sum_.awaited_second = std::max(sum_.awaited_second, std::min(mean, sum_.awaited));
      if (mean <= sum_.awaited) continue;
      sum_.awaited = mean;
      sum_.awaited_rank = rank;
    }
    return sum_;
  }

 private:
  struct Late {
    double time = 0;
    uint64_t operations = 0;
  };

  void add(const LaneRecording& lane) {
    sum_.skipped += lane.skipped;
    double cpu = 0;
    for (const TraceOperation& it : lane.operations) {
      ++sum_.operations;
      sum_.failed += (it.what >> 32 & 0xff) != 0 ? 1 : 0;
      sum_.took += static_cast<double>(it.ended - it.asked);
      took_[lane.rank] += static_cast<double>(it.ended - it.asked);
      sum_.queued += static_cast<double>(it.submitted - it.asked);
      for (size_t cause = 0; cause < kTraceCauses; ++cause) sum_.waited[cause] += static_cast<double>(it.waited[cause]);
      sum_.encode += static_cast<double>(it.encode);
      sum_.add += static_cast<double>(it.add);
      sum_.decode += static_cast<double>(it.decode);
      cpu += static_cast<double>(it.encode + it.add + it.decode);
      const auto asked = asked_.find({lane.lane, it.session, it.number});
      if (const uint64_t last = it.flags >> 8; last != 0) {
        awaited_[static_cast<unsigned>(last - 1)] += static_cast<double>(it.gathered - std::min(it.asked, it.gathered));
      }
      if (asked == asked_.end() || asked->second.ranks != ranks_) continue;
      Late& late = late_[lane.rank];
      ++late.operations;
      late.time += static_cast<double>(it.asked - std::min(asked->second.first, it.asked));
    }
    for (const TraceWait& it : lane.waits) {
      const auto cause = static_cast<size_t>(it.what & 0xff);
      const auto rank = static_cast<unsigned>(it.what >> 8);
      const auto time = static_cast<double>(it.until - it.since);
      if (cause < kTraceCauses && cause != kFullLink) whom_[cause][rank] += time;
    }
    for (const TraceLink& it : lane.links) {
      const auto to = static_cast<unsigned>(it.rank);
      whom_[kFullLink][to] += static_cast<double>(it.full);
      full_[{lane.rank, to}] += static_cast<double>(it.full);
    }
    const double length = bounds_.length();
    if (length == 0 || lane.operations.empty()) return;
    // Operations that were not recorded are counted as if they were like the others.
    const auto recorded = static_cast<double>(lane.operations.size());
    const double all = (recorded + static_cast<double>(lane.skipped)) / recorded;
    sum_.cpu = std::max(sum_.cpu, std::min(all * cpu / length, 1.0));
    sum_.idle = std::min(sum_.idle, std::max(1 - all * (1 - idle_of(lane, bounds_) / length), 0.0));
  }

  const Bounds& bounds_;
  const std::map<OperationKey, Asked>& asked_;
  const size_t ranks_;
  NodeSummary sum_;
  std::array<std::map<unsigned, double>, kTraceCauses> whom_;
  std::map<Link, double> full_;
  std::map<unsigned, double> took_;     // by rank
  std::map<unsigned, Late> late_;       // by rank
  std::map<unsigned, double> awaited_;  // by the trainer that submitted last
};

std::vector<LinkSummary> links_of(std::span<const NodeRecording> nodes, const std::map<Link, double>& full) {
  std::map<Link, LinkSummary> links;
  for (const NodeRecording& node : nodes) {
    for (const LaneRecording& lane : node.lanes) {
      for (const TraceHop& it : lane.hops) {
        if ((it.what & TraceHop::kIn) != 0) continue;
        if ((it.what & TraceHop::kToAll) == 0) {
          links[{lane.rank, static_cast<unsigned>(it.what >> 32)}].bytes += it.bytes;
          continue;
        }
        for (const TraceLink& to : lane.links) links[{lane.rank, static_cast<unsigned>(to.rank)}].bytes += it.bytes;
      }
    }
  }
  std::map<Link, std::vector<double>> delays;
  for (const SampledPacket& it : sampled_packets(nodes)) {
    LinkSummary& link = links[{it.from, it.to}];
    ++link.packets;
    if (it.came == 0) {
      ++link.lost;
    } else {
      delays[{it.from, it.to}].push_back(it.came > it.sent ? static_cast<double>(it.came - it.sent) : 1);
    }
  }
  for (const auto& [link, share] : full) links[link].full = share;
  std::vector<LinkSummary> all;
  for (auto& [link, it] : links) {
    it.from = link.first;
    it.to = link.second;
    if (std::vector<double>& of = delays[link]; !of.empty()) {
      std::ranges::nth_element(of, of.begin() + static_cast<ptrdiff_t>(of.size() / 2));
      it.delay = of[of.size() / 2];
    }
    all.push_back(it);
  }
  std::ranges::stable_sort(all, std::greater{}, &LinkSummary::full);
  return all;
}

}  // namespace

TraceSummary summary_of(std::span<const NodeRecording> nodes) {
  TraceSummary summary;
  const Bounds bounds = bounds_of(nodes);
  summary.seconds = bounds.length() / 1e9;
  const auto asked = first_asked(nodes);
  size_t ranks = 0;
  for (const NodeRecording& node : nodes) ranks += node.ranks_per_node;
  std::map<Link, double> full;
  for (const NodeRecording& node : nodes) {
    summary.ranks_per_node = node.ranks_per_node;
    summary.nodes_of_ring = std::max(summary.nodes_of_ring, node.nodes);
    summary.nodes.push_back(NodeSums(node, bounds, asked, ranks).take(full));
    summary.clock_error = std::max(summary.clock_error, 2 * node.clock.error);
    for (const LaneRecording& lane : node.lanes) summary.dropped += lane.dropped;
  }
  summary.links = links_of(nodes, full);
  summary.verdict = verdict_of(summary, summary.held_up);
  return summary;
}

}  // namespace gradlane
