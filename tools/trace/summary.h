// summary.h - where the time of operations went, by node and by link, and what delays the ring (pure functions)
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "tools/trace/recording.h"

namespace gradlane {

// Times are in ns. Shares are of the time that a node's operations took, all added up. But `idle` and `cpu` are shares
// of the trace's length.
struct NodeSummary {
  unsigned node = 0;
  uint64_t operations = 0;   // recorded operations; each lane counts
  uint64_t failed = 0;       // recorded operations that failed
  uint64_t skipped = 0;      // operations that were not recorded
  double took = 0;           // mean time from the trainer's request to the end
  double late = 0;           // mean time from the first rank's request to the request of this node's latest rank
  unsigned latest_rank = 0;  // the rank of `late`
  // With local_reduce: the mean time for which operations waited for the trainer that delayed them most, and for the
  // one that delayed them second most.
  double awaited = 0;
  double awaited_second = 0;
  unsigned awaited_rank = 0;  // the trainer of `awaited`
  double queued = 0;          // share of the time from the trainer's request until the exchange accepted the operation
  std::array<double, kTraceCauses> waited{};      // shares of the time in which operations waited, by cause
  std::array<unsigned, kTraceCauses> for_whom{};  // for each cause, the rank for which the operations waited longest
  double encode = 0, add = 0, decode = 0;         // mean times per operation
  double cpu = 0;   // share of the trace in encode, add and decode together, on the busiest lane
  double idle = 0;  // share of the trace in which no operation was under way, on the lane where that is least
  std::string missing;
};

struct LinkSummary {
  unsigned from = 0;  // ranks
  unsigned to = 0;
  double full = 0;       // share of the time of the sender's operations in which the link was full
  uint64_t bytes = 0;    // encoded bytes of elements
  uint64_t packets = 0;  // sampled packets
  uint64_t lost = 0;     // sampled packets that did not arrive
  double delay = 0;      // median time from sending to arrival; 0: unknown
};

struct TraceSummary {
  double seconds = 0;  // from the first record to the last
  unsigned ranks_per_node = 1;
  unsigned nodes_of_ring = 0;
  std::vector<NodeSummary> nodes;
  std::vector<LinkSummary> links;  // the fullest first
  double clock_error = 0;          // ns; greatest error between times of two nodes
  uint64_t dropped = 0;            // records that daemons have dropped
  std::string verdict;             // one sentence: what delays the ring, and why
  bool held_up = false;            // the verdict names a cause
};

// Summarizes the recordings of nodes on one clock: see unite().
[[nodiscard]] TraceSummary summary_of(std::span<const NodeRecording> nodes);
[[nodiscard]] std::vector<std::string> summary_lines(const TraceSummary& summary);
[[nodiscard]] nlohmann::json summary_json(const TraceSummary& summary);

}  // namespace gradlane
