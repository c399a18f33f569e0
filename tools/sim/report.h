// report.h - output of `gradlane sim`: a table, or JSON
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "collectives/operation.h"
#include "tools/sim/settings.h"

namespace gradlane {

// One operation on one network.
struct SimRow {
  OpKind op = OpKind::kAllReduce;
  unsigned nodes = 0;
  std::string strategy;
  std::string codec;
  size_t bytes = 0;                    // bytes of the tensor on each rank
  size_t together = 1;                 // operations that the tensor was divided among
  double seconds = 0;                  // time from the submission on all ranks to the last completion
  double goodput_gbps = 0;             // algbw of nccl-tests: tensor / time; 0 if nothing has to move
  double busbw_gbps = 0;               // busbw of nccl-tests: uncompressed bytes that each rank must send / time
  uint64_t wire_bytes = 0;             // on all links, with all headers, acknowledgements and retransmissions
  uint64_t packets = 0;                // number of packets that carry wire_bytes
  uint64_t retransmits = 0;            // packets
  uint64_t queue_drops = 0;            // packets
  std::optional<double> ratio;         // fp32 bytes that had to move per byte on the wire; none if nothing had to move
  std::optional<double> wa_seconds;    // time of a worker-aggregator exchange, uncompressed; all-reduce only
  std::optional<double> star_seconds;  // time of that exchange without a tree for the results; aggregators only
  uint64_t wrong = 0;                  // wrong elements over all ranks
  std::optional<uint64_t> hash;        // of the bytes of the result, which all ranks have; all-reduce only
  std::string failure;                 // empty: none
  // simulated as flows (flow_model.h): the row has no elements to check, and no ranks that could fail
  bool played = false;
};

// Returns the least number of bytes that all ranks together must send for a tensor of that size.
[[nodiscard]] double least_bytes(OpKind op, unsigned nodes, size_t bytes);

// Returns busbw / algbw, as nccl-tests defines it. The rate of a link limits busbw.
[[nodiscard]] double bus_factor(OpKind op, unsigned nodes);

// Returns the time that the INCEPTIONN paper computes for an exchange with an aggregator. Weights return along a tree.
[[nodiscard]] double aggregator_seconds(const SimSettings& plan, unsigned nodes);
// Returns the time for an aggregator that receives from all and sends to all itself, one after the other. It is the
// time of its port, with all headers. `stream`: it receives and sends at the same time.
[[nodiscard]] double star_seconds(const SimSettings& plan, unsigned nodes, bool stream);

// Rows are printed as they are measured.
void print_sim_head(const SimSettings& plan, OpKind op);
void print_sim_row(const SimSettings& plan, const SimRow& row);

// Returns {"rows": [...], "skipped": [...]}. Rows have the fields of SimRow and the name of the data. `skipped` has
// texts that name what is left out, and why.
[[nodiscard]] std::string to_json(const SimSettings& plan, std::span<const SimRow> rows,
                                  std::span<const std::string> skipped);

}  // namespace gradlane
