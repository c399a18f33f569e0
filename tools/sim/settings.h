// settings.h - the options of `gradlane sim`, understood and checked
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/operation.h"
#include "sim/simnet.h"
#include "tools/bench/codec_list.h"
#include "tools/sim/flow_model.h"
#include "tools/sim/sim.h"

namespace gradlane {

struct SimSettings {
  std::vector<unsigned> nodes;
  std::vector<CodecPair> codecs;
  bool every_codec = false;            // "all": codecs that cannot run are left out, which is no error
  std::vector<StrategyId> strategies;  // the ring if none was named
  bool names_strategies = false;
  bool uses_first_fitting_strategy = false;  // each codec uses the first strategy that can carry it
  std::vector<FlowModel> plays;
  SimTopology topology = SimTopology::kCables;
  std::vector<OpKind> ops;
  size_t bytes = 0;              // bytes of the tensor on each rank
  std::vector<size_t> together;  // numbers of operations that the tensor is divided among
  size_t operations = 0;         // operations of a rank in flight at a time
  LinkModel link;
  Faults faults;
  size_t mtu = 0;     // longest packet from the link header on
  size_t window = 0;  // packets in flight to one neighbour
  double gamma = 0;   // time in s per byte that an aggregator adds
  std::string data;
  uint64_t seed = 0;
  bool hash = false;  // the table has a column with hashes of results
};

// An operation with its strategy and codec.
struct SimCandidate {
  OpKind op;
  StrategyId strategy;
  CodecPair codec;
};
struct SimCandidates {
  std::vector<SimCandidate> candidates;
  std::vector<std::string> skipped;  // texts that name what is left out, and why
};
// Returns every codec with every strategy that can carry it. If no strategies are named, each codec uses the ring, or
// direct if the ring cannot carry it. Throws SetupError if a codec that was named cannot be carried.
[[nodiscard]] SimCandidates sim_candidates(const SimSettings& plan, OpKind op);
// Returns the strategies that nodes must allow: the one that is measured, and direct if the codec needs links between
// all nodes.
[[nodiscard]] std::vector<StrategyId> allowed_strategies(const SimCandidate& candidate);

// Checks the options and returns the settings. Throws SetupError that names the option, the value that was given and
// the allowed ones.
[[nodiscard]] SimSettings make_plan(const SimOptions& options);

[[nodiscard]] std::vector<std::string> op_names();

}  // namespace gradlane
