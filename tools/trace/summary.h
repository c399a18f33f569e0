// summary.h - where the time of operations went, by node and by link, and who holds the ring up (pure functions)
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "tools/trace/recording.h"

namespace gradlane {

// Times in ns. Shares are of the time that a node's operations took, all added up; of the trace's length: `idle`,
// `cpu`.
struct NodeSummary {
  unsigned node = 0;
  uint64_t operations = 0;   // recorded, each lane counted,
  uint64_t failed = 0;       //   of these,
  uint64_t skipped = 0;      //   and not recorded
  double took = 0;           // mean, from the trainer's asking to the end
  double late = 0;           // mean time from the first rank's request to that of this node's latest rank,
  unsigned latest_rank = 0;  //   that rank
  // With local_reduce, means: how long an operation waited for the trainer that it waited for longest, and for the
  // second one.
  double awaited = 0;
  double awaited_second = 0;
  unsigned awaited_rank = 0;                      // the trainer of `awaited`
  double queued = 0;                              // share
  std::array<double, kTraceCauses> waited{};      // shares
  std::array<unsigned, kTraceCauses> for_whom{};  // of each, the rank that most of it was for
  double encode = 0, add = 0, decode = 0;         // means for an operation
  double cpu = 0;                                 // these, of the trace, by lane: of the busiest
  double idle = 0;                                // no operation was asked for
  std::string missing;
};

struct LinkSummary {
  unsigned from = 0;  // ranks
  unsigned to = 0;
  double full = 0;       // share of the sender's operations
  uint64_t bytes = 0;    // of elements, encoded
  uint64_t packets = 0;  // sampled,
  uint64_t lost = 0;     //   of these
  double delay = 0;      // median from sending to arrival; 0: not known
};

struct TraceSummary {
  double seconds = 0;  // from the first record to the last
  unsigned ranks_per_node = 1;
  unsigned nodes_of_ring = 0;
  std::vector<NodeSummary> nodes;
  std::vector<LinkSummary> links;  // the fullest first
  double clock_error = 0;          // ns, between two nodes
  uint64_t dropped = 0;            // records
  std::string verdict;             // who holds the ring up, and why; one sentence
  bool held_up = false;            //   somebody does
};

// Of nodes on one clock: see unite().
[[nodiscard]] TraceSummary summary_of(std::span<const NodeRecording> nodes);
[[nodiscard]] std::vector<std::string> summary_lines(const TraceSummary& summary);
[[nodiscard]] nlohmann::json summary_json(const TraceSummary& summary);

}  // namespace gradlane
