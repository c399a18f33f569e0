// plan.h - the options of `gradlane sim`, understood and checked
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/operation.h"
#include "sim/simnet.h"
#include "tools/bench/codec_list.h"
#include "tools/sim/play.h"
#include "tools/sim/sim.h"

namespace gradlane {

struct SimPlan {
  std::vector<unsigned> nodes;
  std::vector<CodecPair> codecs;
  bool every_codec = false;            // "all": those that cannot run are left out, and not an error
  std::vector<StrategyId> strategies;  // the ring if none was named
  bool names_strategies = false;
  bool first_strategy = false;  // each codec goes by the first one that can carry it
  std::vector<Play> plays;
  SimTopology topology = SimTopology::kCables;
  std::vector<OpKind> ops;
  size_t bytes = 0;              // of the tensor on each rank
  std::vector<size_t> together;  // operations that it is divided among
  size_t operations = 0;         // in flight, of those
  LinkModel link;
  Faults faults;
  size_t mtu = 0;     // longest packet from the link header on
  size_t window = 0;  // packets in flight to one neighbour
  double gamma = 0;   // s/byte
  std::string data;
  uint64_t seed = 0;
};

// What goes by a way of its own.
struct SimWay {
  OpKind op;
  StrategyId strategy;
  CodecPair codec;
};
struct SimWays {
  std::vector<SimWay> ways;
  std::vector<std::string> skipped;  // what is left out, and why
};
// Every codec by every strategy that can carry it. Where no strategies are named it is the ring, or else direct.
[[nodiscard]] SimWays sim_ways(const SimPlan& plan, OpKind op);
// Those that nodes allow: the one that is measured, and direct where a codec needs links between all.
[[nodiscard]] std::vector<StrategyId> allowed_strategies(const SimWay& way);

// Throws SetupError naming the option, what was given and what is allowed.
[[nodiscard]] SimPlan make_plan(const SimOptions& options);

[[nodiscard]] std::vector<std::string> op_names();

}  // namespace gradlane
