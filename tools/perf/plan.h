// plan.h - the options of `gradlane perf`, understood and checked
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/gradlane.h"
#include "collectives/operation.h"
#include "collectives/strategy/strategy_id.h"
#include "tools/bench/codec_list.h"
#include "tools/perf/perf.h"

namespace gradlane {

enum class PerfFormat : uint8_t { kTable, kJson, kOsu, kNccl };

enum class PerfOp : uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast };

struct PerfType {
  const char* name;
  gradlane_type type;
  size_t bytes;  // of an element
};

// With a name, one that the library chooses within the bound of `there`: "auto:2^-10".
struct PerfCodec : CodecPair {
  std::string automatic{};

  [[nodiscard]] std::string name() const { return automatic.empty() ? CodecPair::name() : automatic; }
};

struct PerfPlan {
  std::vector<size_t> sizes;  // of the tensor, bytes, ascending
  unsigned iterations = 0;
  unsigned warmup = 0;
  std::vector<unsigned> together;  // operations that a tensor is divided among
  unsigned concurrent = 1;         // operations in flight at a time
  double background = 0;           // p99/p50 that other traffic is to bring about; 0: there is none
  std::string interface;           // which that goes by
  bool percentiles = false;
  PerfFormat format = PerfFormat::kTable;
  std::vector<PerfOp> ops;
  std::vector<StrategyId> strategies;  // none: the daemon's,
  bool auto_strategy = false;          //   or the one that the library chooses
  std::vector<PerfCodec> codecs;       // `raw` alone, unless the type is float32
  bool every_codec = false;            // "all": those that cannot run are left out, and not an error
  bool feedback = false;               // codecs that have states keep them
  Reduction reduction = Reduction::kSum;
  PerfType type{};
  std::string data;
  uint64_t seed = 0;
  bool check = true;
};

// Throws SetupError for what cannot be used.
[[nodiscard]] PerfPlan make_perf_plan(const PerfOptions& options);

// Where operation `part` of those that a tensor of `count` elements is divided among begins.
[[nodiscard]] inline size_t part_begin(size_t count, unsigned part, unsigned together) noexcept {
  return count / together * part + count % together * part / together;
}

// Those to measure the operation with: what only copies is exact.
[[nodiscard]] std::vector<PerfCodec> perf_codecs(const PerfPlan& plan, PerfOp op);

// What a row is about.
struct PerfWay {
  PerfOp op{};
  StrategyId strategy;
  bool named = false;  // or it is the daemon's
  PerfCodec codec;
};
struct PerfWays {
  std::vector<PerfWay> ways;
  std::vector<std::string> skipped;  // what is left out, and why
};
// Where no strategies are named, each codec goes by the first one that it can go by of those that the daemon allows.
// Throws SetupError if one that was named can go nowhere.
[[nodiscard]] PerfWays perf_ways(const PerfPlan& plan, PerfOp op, const std::vector<StrategyId>& allowed,
                                 unsigned world);

[[nodiscard]] OpKind perf_kind(PerfOp op) noexcept;
// As nccl-tests call it: "allreduce".
[[nodiscard]] const char* perf_op_name(PerfOp op) noexcept;
[[nodiscard]] std::vector<std::string> perf_op_names();
[[nodiscard]] std::vector<std::string> perf_type_names();

// Elements of a tensor of that many bytes: whole blocks where each rank has one, at least one element each.
[[nodiscard]] size_t perf_count(const PerfPlan& plan, PerfOp op, size_t bytes, unsigned world) noexcept;

// Of the size of the tensor: what a rank must send at least, in the mean over ranks, if nothing is compressed.
[[nodiscard]] double least_share(PerfOp op, unsigned world) noexcept;
// busbw / algbw, as nccl-tests define it.
[[nodiscard]] double bus_share(PerfOp op, unsigned world) noexcept;

}  // namespace gradlane
