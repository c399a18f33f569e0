// perf.cc - `gradlane perf`: time, bandwidth and results of collectives, as a trainer of a running ring
#include "tools/perf/perf.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.h"
#include "tools/bench/memory.h"
#include "tools/bench/report.h"
#include "tools/perf/data.h"
#include "tools/perf/plan.h"
#include "tools/perf/report.h"
#include "tools/perf/trainer.h"

namespace gradlane {
namespace {

using Clock = std::chrono::steady_clock;

int64_t nanos_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

gradlane_reduction reduction_of(Reduction reduction) {
  if (reduction == Reduction::kMin) return GRADLANE_MIN;
  return reduction == Reduction::kMax ? GRADLANE_MAX : GRADLANE_SUM;
}

// One rank of a run: all ranks walk through the same rows.
class Perf {
 public:
  explicit Perf(const PerfPlan& plan) : plan_(plan), data_(plan, trainer_.rank(), trainer_.world()) {
    const std::vector<std::string> allowed = trainer_.strategies();
    for (const StrategyId& strategy : plan.strategies) {
      const std::string name(strategy.name().view());
      if (std::ranges::find(allowed, name) != allowed.end()) continue;
      throw SetupError(fmt::format("--strategy '{}': the daemon allows {} (strategies in its configuration)", name,
                                   fmt::join(allowed, ", ")));
    }
  }

  // Rank 0 prints. Returns the exit status.
  int run(bool json) {
    const bool prints = trainer_.rank() == 0;
    if (prints && !json) print_perf_head(plan_, trainer_.world());
    std::vector<PerfRow> rows;
    uint64_t wrong = 0;
    for (const PerfOp op : plan_.ops) {
      for (const size_t bytes : plan_.sizes) {
        prepare(op, bytes);
        for (const PerfWay& way : ways(op)) {
          rows.push_back(measure(way));
          wrong += rows.back().wrong;
          if (prints && !json) print_perf_row(rows.back(), plan_.check);
        }
        trainer_.free(tensor_);
      }
    }
    if (prints && json) fmt::print("{}\n", to_json(plan_, trainer_.world(), rows));
    if (prints && !json) print_perf_foot(rows, plan_.check);
    std::fflush(stdout);
    return wrong == 0 ? 0 : 1;
  }

 private:
  // What a row is about.
  struct PerfWay {
    PerfOp op{};
    StrategyId strategy;
    bool named = false;  // or it is the daemon's
    PerfCodec codec;
  };

  std::vector<PerfWay> ways(PerfOp op) const {
    std::vector<StrategyId> strategies = plan_.strategies;
    if (strategies.empty()) {
      const std::vector<std::string> allowed = trainer_.strategies();
      const StrategyId first = allowed.empty() ? StrategyId{} : find_strategy(allowed.front());
      strategies.push_back(supports(first, perf_kind(op)) ? first : StrategyId{});
    }
    std::vector<PerfWay> all;
    for (const StrategyId& strategy : strategies) {
      for (const PerfCodec& codec : perf_codecs(plan_, op)) {
        all.push_back({op, strategy, !plan_.strategies.empty(), codec});
      }
    }
    return all;
  }

  void prepare(PerfOp op, size_t bytes) {
    count_ = perf_count(plan_, op, bytes, trainer_.world());
    bytes_ = count_ * plan_.type.bytes;
    input_ = allocate_memory(bytes_);
    scratch_ = allocate_memory(bytes_);
    data_.fill(input_.get(), count_);
    tensor_ = trainer_.allocate(bytes_);
  }

  PerfRow measure(const PerfWay& way) {
    std::vector<double> copies;
    time_memcpy(copies);
    for (unsigned i = 0; i < plan_.warmup; ++i) (void)once(way);
    trainer_.barrier();
    const uint64_t sent_before = trainer_.data_bytes();
    std::vector<int64_t> times;
    for (unsigned i = 0; i < plan_.iterations; ++i) times.push_back(once(way));
    trainer_.barrier();  // or this rank may still have something to pass on
    const uint64_t sent = trainer_.data_bytes() - sent_before;
    time_memcpy(copies);
    return make_row(way, median_of_slowest(times), static_cast<double>(sum_of(sent)), count_wrong(way), median(copies));
  }

  // Nanoseconds from the end of a barrier to the end of the operation on this rank.
  int64_t once(const PerfWay& way) {
    std::memcpy(tensor_, input_.get(), bytes_);
    trainer_.barrier();
    const StrategyName strategy = way.strategy.name();
    const std::string codec = way.codec.name();
    const gradlane_reduction reduction = reduction_of(plan_.reduction);
    const Clock::time_point start = Clock::now();
    trainer_.run(way.op, tensor_, count_, plan_.type.type, way.named ? strategy.c_str() : nullptr, codec, reduction);
    return nanos_since(start);
  }

  // Rank 0 alone, or ranks on one machine would share its memory's bandwidth. Samples are in GB/s.
  void time_memcpy(std::vector<double>& samples) {
    trainer_.barrier();
    if (trainer_.rank() == 0) {
      constexpr size_t kLeastBytes = size_t{4} << 20;  // of a sample, so that it is long enough to be timed
      const size_t copies = std::max(kLeastBytes / bytes_, size_t{1});
      for (int i = 0; i < 4; ++i) {
        const Clock::time_point start = Clock::now();
        for (size_t k = 0; k < copies; ++k) {
          std::memcpy(scratch_.get(), input_.get(), bytes_);
          asm volatile("" : : "r"(scratch_.get()) : "memory");  // each copy happens
        }
        const double nanos = static_cast<double>(nanos_since(start));
        if (i > 0) samples.push_back(static_cast<double>(copies * bytes_) / nanos);
      }
    } else {
      samples.push_back(0);  // not looked at
    }
    trainer_.barrier();
  }

  // Of each iteration the slowest rank, of those the median.
  double median_of_slowest(std::span<const int64_t> times) {
    std::vector<double> slowest;
    for (size_t done = 0; done < times.size(); done += Trainer::kMaxGathered) {
      const size_t n = std::min(Trainer::kMaxGathered, times.size() - done);
      const std::vector<int64_t> all = trainer_.gather(times.subspan(done, n));
      for (size_t i = 0; i < n; ++i) {
        int64_t most = 0;
        for (unsigned rank = 0; rank < trainer_.world(); ++rank) most = std::max(most, all[rank * n + i]);
        slowest.push_back(static_cast<double>(most));
      }
    }
    return median(slowest);
  }

  uint64_t sum_of(uint64_t number) {
    const int64_t own = static_cast<int64_t>(number);
    uint64_t sum = 0;
    for (const int64_t each : trainer_.gather({&own, 1})) sum += static_cast<uint64_t>(each);
    return sum;
  }

  // Wrong elements of all ranks in the latest result, and ranks whose result differs from that of rank 0.
  uint64_t count_wrong(const PerfWay& way) {
    if (!plan_.check) return 0;
    uint64_t wrong = sum_of(data_.count_wrong(way.op, way.strategy, way.codec, tensor_, count_));
    if (way.op == PerfOp::kReduceScatter) return wrong;  // each rank has another block
    const int64_t hash = static_cast<int64_t>(hash_bytes(tensor_, bytes_));
    const std::vector<int64_t> hashes = trainer_.gather({&hash, 1});
    for (const int64_t each : hashes) wrong += each == hashes.front() ? 0 : 1;
    return wrong;
  }

  PerfRow make_row(const PerfWay& way, double nanos, double sent, uint64_t wrong, double memcpy_gbps) const {
    const unsigned world = trainer_.world();
    const double bytes = static_cast<double>(bytes_);
    const double least = bytes * least_share(way.op, world) * plan_.iterations * world;
    PerfRow row;
    row.op = way.op;
    row.strategy = way.strategy.name().view();
    row.codec = way.codec.name();
    row.bytes = bytes_;
    row.count = count_;
    row.time_us = nanos / 1e3;
    row.algbw = bytes / nanos;
    row.busbw = row.algbw * bus_share(way.op, world);
    row.wire_ratio = world > 1 && sent > 0 ? least / sent : 0;
    row.memcpy_gbps = memcpy_gbps;
    row.vs_memcpy = memcpy_gbps > 0 ? row.algbw / memcpy_gbps : 0;
    row.wrong = wrong;
    return row;
  }

  const PerfPlan& plan_;
  Trainer trainer_;
  PerfData data_;
  // Of the size that is measured:
  size_t count_ = 0;
  size_t bytes_ = 0;
  BenchMemory input_{nullptr, nullptr};
  BenchMemory scratch_{nullptr, nullptr};  // target of memcpy
  void* tensor_ = nullptr;
};

}  // namespace

int run_perf(const PerfOptions& options) {
  const PerfPlan plan = make_perf_plan(options);
  try {
    return Perf(plan).run(options.json);
  } catch (const PerfError& error) {
    fmt::print(stderr, "gradlane perf: {}\n", error.what());
    return 1;
  }
}

}  // namespace gradlane
