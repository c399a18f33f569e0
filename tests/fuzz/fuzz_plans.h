// fuzz_plans.h - the operations that the ring of exchange_fuzz runs while it is fuzzed, and their tensors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "collectives/operation.h"
#include "collectives/wire.h"
#include "compress/codec.h"

namespace gradlane::test {

using Bytes = std::vector<uint8_t>;

struct Plan {
  OpKind kind;
  ElementType type;
  size_t count;
  Codec codec;
  bool average = false;
  bool residual = false;
};

// Returns a codec for which ranks agree on a value, and whose runs fit into short packets.
inline Codec agreeing_codec() {
  for (const CodecRow& row : codec_table()) {
    if (row.agreement != Agreement::kNone && row.granule == kGroupFloats) return find_codec(row.example);
  }
  return find_codec("fixed:10");
}

using enum OpKind;
using enum ElementType;
// Returns the operations of each plan. The plans are made one time only: to find a codec takes longer than to run many
// packets.
inline const std::array<std::vector<Plan>, 4>& plans() {
  static const Codec raw = find_codec("raw");
  static const std::array<std::vector<Plan>, 4> all = {{
      // The first tensor is longer than OrderedReducer::kSmallBytes, so it needs the memory of a large one. It takes
      // few packets.
      {{kAllReduce, kFloat32, 4500, find_codec("fixed:10")}, {kAllGather, kInt32, 70, raw}},
      {{kAllReduce, kFloat32, 300, raw, true},
       {kBroadcast, kBytes, 999, raw},
       {kBarrier, kInt32, 0, raw},
       {kAllReduce, kBfloat16, 300, find_codec("pack")}},
      {{kReduceScatter, kInt64, 50, raw},
       {kAllReduce, kInt32, 1, raw},
       {kAllReduce, kFloat64, 101, find_codec("exact"), true}},
      {{kBroadcast, kFloat32, 500, find_codec("inceptionn:9")},
       {kAllReduce, kFloat32, 600, find_codec("fixed:6"), false, true},
       {kAllReduce, kFloat32, 400, agreeing_codec()}},
  }};
  return all;
}

// The tensors of one operation, by rank.
struct Tensors {
  Tensors(const Plan& of, unsigned world, uint64_t seed) : plan(of) {
    const bool shares = plan.kind == kReduceScatter || plan.kind == kAllGather;
    const size_t elements = plan.count * (shares ? world : 1);
    Random random(seed);
    for (unsigned rank = 0; rank < world; ++rank) {
      Bytes& bytes = data.emplace_back(elements * element_bytes(plan.type));
      for (size_t at = 0; at + sizeof(float) <= bytes.size() && plan.type == kFloat32; at += sizeof(float)) {
        store(&bytes[at], static_cast<float>(static_cast<double>(random.below(4001)) / 1e4 - 0.2));
      }
      if (plan.type != kFloat32) {
        for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.next());
      }
      residuals.emplace_back(plan.residual ? elements : 0, 0.001F);
    }
  }
  Operation operation(unsigned rank) {
    Operation operation;
    operation.kind = plan.kind;
    operation.type = plan.type;
    if (plan.average) operation.reduction = Reduction::kAverage;
    operation.count = plan.count;
    operation.data = data[rank].data();
    operation.residual = plan.residual ? residuals[rank].data() : nullptr;
    operation.codec = plan.codec;
    return operation;
  }
  // Returns the part of a rank's tensor that is defined in the end.
  [[nodiscard]] std::span<const uint8_t> outcome(unsigned rank) const {
    if (plan.kind != kReduceScatter) return data[rank];
    return std::span(data[rank])
        .subspan(rank * plan.count * element_bytes(plan.type), plan.count * element_bytes(plan.type));
  }

  Plan plan;
  std::vector<Bytes> data;
  std::vector<std::vector<float>> residuals;
};

}  // namespace gradlane::test
