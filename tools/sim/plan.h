// plan.h - the options of `gradlane sim`, understood and checked
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/operation.h"
#include "tools/sim/play.h"
#include "tools/sim/sim.h"
#include "tools/simnet/simnet.h"

namespace gradlane {

// How fp32 travels; "fixed:10/raw": the way back by another codec.
struct SimCodec {
  Codec codec;
  std::optional<Codec> back;

  [[nodiscard]] std::string name() const { return codec.name() + (back ? "/" + back->name() : ""); }
};

struct SimPlan {
  std::vector<unsigned> nodes;
  std::vector<SimCodec> codecs;
  std::vector<StrategyId> strategies;  // the ring if none was named
  bool names_strategies = false;
  std::vector<Play> plays;
  SimTopology topology = SimTopology::kCables;
  std::vector<OpKind> ops;
  size_t bytes = 0;  // of the tensor on each rank
  LinkModel link;
  Faults faults;
  size_t mtu = 0;     // longest packet from the link header on
  size_t window = 0;  // packets in flight to one neighbour
  double gamma = 0;   // s/byte
  std::string data;
  uint64_t seed = 0;
};

// Throws SetupError naming the option, what was given and what is allowed.
[[nodiscard]] SimPlan make_plan(const SimOptions& options);

[[nodiscard]] std::vector<std::string> op_names();

}  // namespace gradlane
