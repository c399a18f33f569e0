// settings.h - the options of `gradlane perf`, understood and checked
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
  size_t bytes;  // size of an element
};

// A codec, or a pair of them. If `automatic` is a name such as "auto:2^-10", the library chooses a codec within the
// bound of `there`.
struct PerfCodec : CodecPair {
  std::string automatic{};

  [[nodiscard]] std::string name() const { return automatic.empty() ? CodecPair::name() : automatic; }
};

struct PerfSettings {
  std::vector<size_t> sizes;  // sizes of the tensor, bytes, ascending
  unsigned iterations = 0;
  unsigned warmup = 0;
  std::vector<unsigned> together;  // numbers of operations that a tensor is divided among
  unsigned concurrent = 1;         // operations in flight at a time
  double background = 0;           // p99/p50 that other traffic must cause; 0: there is no other traffic
  std::string interface;           // network interface for that traffic
  bool percentiles = false;
  PerfFormat format = PerfFormat::kTable;
  std::vector<PerfOp> ops;
  std::vector<StrategyId> strategies;  // empty: the daemon's strategy, or the library's choice if auto_strategy is true
  bool auto_strategy = false;          // the library chooses the strategy
  std::vector<PerfCodec> codecs;       // `raw` alone, unless the type is float32
  bool every_codec = false;            // "all": codecs that cannot run are left out, which is no error
  bool feedback = false;               // codecs that have states keep them
  bool encoded = false;                // contributions are encoded before the all-reduces, and compared with floats
  Reduction reduction = Reduction::kSum;
  PerfType type{};
  std::string data;
  uint64_t seed = 0;
  bool check = true;
};

// Checks the options and returns the settings. Throws SetupError if an option cannot be used.
[[nodiscard]] PerfSettings make_perf_settings(const PerfOptions& options);

// Returns the element where operation `part` begins if a tensor of `count` elements is divided among `together`
// operations.
[[nodiscard]] inline size_t part_begin(size_t count, unsigned part, unsigned together) noexcept {
  return count / together * part + count % together * part / together;
}

// Returns the codecs to measure the operation with. An operation that only copies has just `raw`.
[[nodiscard]] std::vector<PerfCodec> perf_codecs(const PerfSettings& plan, PerfOp op);

// The operation, strategy and codec of a row.
struct PerfCandidate {
  PerfOp op{};
  StrategyId strategy;
  bool named = false;  // the operation names the strategy; false: it uses the daemon's
  PerfCodec codec;
};
struct PerfCandidates {
  std::vector<PerfCandidate> candidates;
  std::vector<std::string> skipped;  // texts that name what is left out, and why
};
// Returns the strategies and codecs to measure the operation with. If `plan` names no strategies, each codec uses the
// first allowed strategy that can carry it. Throws SetupError if no strategy can carry a codec that was named.
[[nodiscard]] PerfCandidates perf_candidates(const PerfSettings& plan, PerfOp op,
                                             const std::vector<StrategyId>& allowed, unsigned world);

[[nodiscard]] OpKind perf_kind(PerfOp op) noexcept;
// Returns the name that nccl-tests use: "allreduce".
[[nodiscard]] const char* perf_op_name(PerfOp op) noexcept;
[[nodiscard]] std::vector<std::string> perf_op_names();
[[nodiscard]] std::vector<std::string> perf_type_names();

// Returns the number of elements of a tensor of about `bytes` bytes. If each rank has a block, all blocks have the same
// number of elements, and at least one. A tensor without blocks has at least one element, too.
[[nodiscard]] size_t perf_count(const PerfSettings& plan, PerfOp op, size_t bytes, unsigned world) noexcept;

// Returns the least number of bytes that a rank must send without compression, divided by the bytes of the tensor. It
// is the mean over ranks.
[[nodiscard]] double least_share(PerfOp op, unsigned world) noexcept;
// Returns busbw / algbw, as nccl-tests define it.
[[nodiscard]] double bus_share(PerfOp op, unsigned world) noexcept;

}  // namespace gradlane
