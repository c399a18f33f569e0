// report.h - what `gradlane sim` prints: a table, or JSON
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "collectives/operation.h"
#include "tools/sim/plan.h"

namespace gradlane {

// One operation on one network.
struct SimRow {
  OpKind op = OpKind::kAllReduce;
  unsigned nodes = 0;
  std::string strategy;
  std::string codec;
  size_t bytes = 0;                    // of the tensor on each rank
  size_t together = 1;                 // operations that it was divided among
  double seconds = 0;                  // from the submission on all ranks to the last completion
  double goodput_gbps = 0;             // algbw of nccl-tests: tensor / time; 0 where nothing has to move
  double busbw_gbps = 0;               // busbw of nccl-tests: what each rank must send, uncompressed / time
  uint64_t wire_bytes = 0;             // on all links, with all headers, acknowledgements and retransmissions
  uint64_t packets = 0;                // the same
  uint64_t retransmits = 0;            // packets
  uint64_t queue_drops = 0;            // packets
  std::optional<double> ratio;         // fp32 bytes that had to move per byte on the wire; none if nothing had to
  std::optional<double> wa_seconds;    // of a worker-aggregator exchange, uncompressed; all-reduce only
  std::optional<double> star_seconds;  // the same without a tree on the way down; aggregators only
  uint64_t wrong = 0;                  // elements over all ranks
  std::string failure;                 // empty: none
  bool played = false;                 // as flows (play.h): no elements, and no ranks that could fail
};

// What all ranks together must send of a tensor of that many bytes, at the least.
[[nodiscard]] double least_bytes(OpKind op, unsigned nodes, size_t bytes);

// busbw / algbw, as nccl-tests defines it: what the rate of a link bounds.
[[nodiscard]] double bus_factor(OpKind op, unsigned nodes);

// What the INCEPTIONN paper reckons for an exchange with an aggregator: weights go down in a tree.
[[nodiscard]] double aggregator_seconds(const SimPlan& plan, unsigned nodes);
// The same for one that gets all and sends all itself, one after the other, with what headers take: its port's time.
[[nodiscard]] double star_seconds(const SimPlan& plan, unsigned nodes, bool stream);

// Rows are printed as they come.
void print_sim_head(const SimPlan& plan, OpKind op);
void print_sim_row(const SimPlan& plan, const SimRow& row);

// {"rows": [...], "skipped": [...]}: with the fields of SimRow and the name of the data; what is left out, and why.
[[nodiscard]] std::string to_json(const SimPlan& plan, std::span<const SimRow> rows,
                                  std::span<const std::string> skipped);

}  // namespace gradlane
