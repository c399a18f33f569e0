// perf.cc - `gradlane perf`: time, bandwidth and results of collectives, as a trainer of a running ring
#include "tools/perf/perf.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "base/error.h"
#include "client/gradlane.h"
#include "config/config.h"
#include "tools/bench/memory.h"
#include "tools/bench/report.h"
#include "tools/perf/chosen.h"
#include "tools/perf/data.h"
#include "tools/perf/load.h"
#include "tools/perf/report.h"
#include "tools/perf/rounds.h"
#include "tools/perf/settings.h"
#include "tools/perf/tail.h"
#include "tools/perf/trainer.h"

namespace gradlane {
namespace {

constexpr size_t kMostRunBytes = size_t{64} << 20;  // bytes of the longest tensor whose result can be runs

// Shared memory of one row: the state arrays, one after the other, the encoded contribution, or the result's runs.
template <typename T>
class Buffer {
 public:
  Buffer(Trainer& trainer, size_t count) : trainer_(trainer), count_(count) {
    if (count_ > 0) data_ = static_cast<T*>(trainer_.allocate(count_ * sizeof(T)));
  }
  ~Buffer() {
    if (data_ != nullptr) trainer_.release(data_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] T* data() const noexcept { return data_; }
  [[nodiscard]] size_t count() const noexcept { return count_; }

 private:
  Trainer& trainer_;
  size_t count_;
  T* data_ = nullptr;
};

// One rank of a run. All ranks measure the same rows in the same order.
class Perf {
 public:
  explicit Perf(const PerfSettings& plan)
      : plan_(plan), data_(plan_, trainer_.rank(), trainer_.world(), !trainer_.adds_locally()), load_(trainer_, plan_) {
    leave_out();
    const std::vector<std::string> allowed = trainer_.strategies();
    for (const std::string& name : allowed) allowed_.push_back(find_strategy(name));
    for (const StrategyId& strategy : plan.strategies) {
      if (std::ranges::find(allowed_, strategy) != allowed_.end()) continue;
      throw SetupError(fmt::format("--strategy '{}': the daemon allows {} (strategies in its configuration)",
                                   strategy.name().view(), fmt::join(allowed, ", ")));
    }
  }

  // Measures all rows, which rank 0 prints. Returns the exit status.
  int run() {
    const bool prints = trainer_.rank() == 0;
    std::vector<PerfCandidates> all;
    for (const PerfOp op : plan_.ops) all.push_back(perf_candidates(plan_, op, allowed_, trainer_.world()));
    if (prints) print_perf_head(plan_, trainer_.world());
    std::vector<PerfRow> rows;
    std::vector<std::string> skipped = unfit_;
    uint64_t wrong = 0;
    for (size_t i = 0; i < plan_.ops.size(); ++i) {
      const PerfOp op = plan_.ops[i];
      const PerfCandidates& candidates = all[i];
      skipped.insert(skipped.end(), candidates.skipped.begin(), candidates.skipped.end());
      for (const size_t bytes : plan_.sizes) {
        prepare(op, bytes);
        for (const PerfCandidate& candidate : candidates.candidates) {
          for (const unsigned together : plan_.together) {
            tensors_.together = together;
            rows.push_back(measure(candidate));
            wrong += rows.back().wrong;
            if (prints && chooses(candidate))
              rows.back().chosen = chosen_of(rows.back(), plan_.type.name, trainer_.rank(), trainer_.world());
            if (prints) print_perf_row(plan_, rows.back());
          }
        }
        for (void* const tensor : tensors_.tensors) trainer_.free(tensor);
      }
    }
    if (rows.empty()) throw SetupError(fmt::format("nothing to measure: {}", fmt::join(skipped, "; ")));
    if (prints) print_perf_end(plan_, trainer_.world(), rows, skipped);
    return wrong == 0 ? 0 : 1;
  }

 private:
  // Removes codecs that the daemon refuses with every strategy, because their blocks do not fit its packets. Throws
  // SetupError if such a codec was named, and "all" was not.
  void leave_out() {
    std::erase_if(plan_.codecs, [this](const PerfCodec& codec) {
      std::string fault = trainer_.fault_of(codec.name());
      if (fault.empty() && plan_.encoded) fault = trainer_.encoding_fault_of(codec.name());
      if (!fault.empty() && !plan_.every_codec) throw SetupError(fmt::format("--codec '{}': {}", codec.name(), fault));
      if (!fault.empty()) unfit_.push_back(fault);
      return !fault.empty();
    });
  }

  void prepare(PerfOp op, size_t bytes) {
    count_ = perf_count(plan_, op, bytes, trainer_.world());
    bytes_ = count_ * plan_.type.bytes;
    input_ = allocate_memory(bytes_);
    scratch_ = allocate_memory(bytes_);
    data_.fill(input_.get(), count_);
    tensors_ = {.input = input_.get(), .tensors = {}, .count = count_, .bytes = bytes_};
    for (unsigned i = 0; i < plan_.concurrent; ++i) tensors_.tensors.push_back(trainer_.allocate(bytes_));
  }

  PerfRow measure(const PerfCandidate& candidate) {
    const Buffer<float> states(trainer_, keeps(candidate) ? candidate.codec.there.states() * count_ : 0);
    tensors_.states = states.data();
    const Buffer<uint8_t> encoded(trainer_, plan_.encoded ? gradlane_encoded_space(count_) : 0);
    const std::vector<int64_t> encode_times = encode(candidate, {encoded.data(), encoded.count()});
    const Buffer<uint8_t> runs(trainer_, gives_runs(candidate) ? gradlane_runs_space(count_) : 0);
    tensors_.runs = {runs.data(), runs.count()};
    std::vector<double> copies;
    time_memcpy(copies);
    // If the library chooses, it has usually chosen by the end of the warm-up: a first round has at most 20 trials.
    (void)run_rounds(trainer_, plan_, candidate, tensors_, std::max(plan_.warmup, chooses(candidate) ? 16U : 0U), {});
    load_.tune([&](unsigned operations, const PerfStart& before) {
      return slowest_of(run_rounds(trainer_, plan_, candidate, tensors_, operations, before).each);
    });
    trainer_.barrier();
    const uint64_t sent_before = trainer_.data_bytes();
    // The last operation runs separately, because its check needs the states before it.
    const unsigned apart = states.count() > 0 ? 1 : 0;
    PerfTimes times = run_rounds(trainer_, plan_, candidate, tensors_, plan_.iterations - apart, load_.bursts());
    const std::vector<float> before(states.data(), states.data() + states.count());
    if (apart > 0) {
      const PerfTimes last = run_rounds(trainer_, plan_, candidate, tensors_, apart, {});
      times.each.push_back(last.each.front());
      times.all += last.all;
    }
    trainer_.barrier();  // without it, this rank might still have packets to forward
    const uint64_t sent = trainer_.data_bytes() - sent_before;
    load_.check();
    time_memcpy(copies);
    const uint64_t wrong = count_wrong(candidate, before) + count_wrong_runs(candidate);
    PerfRow row = make_row(candidate, static_cast<double>(sum_of(sent)), wrong, median(copies));
    set_times(row, times);
    if (plan_.encoded) {
      row.encoded = {.bytes_per_float = static_cast<double>(tensors_.encoded.size()) / static_cast<double>(count_),
                     .encode_gbps = static_cast<double>(bytes_) / median(slowest_of(encode_times)) / 1e3,
                     .runs_us = times.runs.empty() ? 0 : median(slowest_of(times.runs)),
                     .floats_us = median(slowest_of(times.floats))};
    }
    return row;
  }

  // Encodes this rank's input into `space`, which may be empty, as the contribution to all operations of a row. Returns
  // the nanoseconds of each iteration.
  std::vector<int64_t> encode(const PerfCandidate& candidate, std::span<uint8_t> space) {
    std::vector<int64_t> times;
    tensors_.encoded = {};
    if (space.empty()) return times;
    float* const floats = static_cast<float*>(tensors_.tensors.front());
    std::memcpy(floats, tensors_.input, bytes_);
    for (unsigned i = 0; i < plan_.warmup + plan_.iterations; ++i) {
      trainer_.barrier();
      const PerfClock::time_point start = PerfClock::now();
      trainer_.encode(floats, count_, space, candidate.codec.name());
      if (i >= plan_.warmup) times.push_back(nanos_since(start));
    }
    tensors_.encoded = space.first(gradlane_encoded_bytes(space.data(), count_));
    return times;
  }

  // Returns whether results can be encoded runs: `runs` of gradlane_how.
  bool gives_runs(const PerfCandidate& candidate) const {
    return plan_.encoded && candidate.strategy.kind != StrategyId::Kind::kAggregator &&
           !candidate.codec.there.row().rounds_once && bytes_ <= kMostRunBytes;
  }

  // Returns the number of elements of all ranks in which the latest result as runs differs from the latest one as
  // floats.
  uint64_t count_wrong_runs(const PerfCandidate& candidate) {
    if (tensors_.runs.empty() || !plan_.check) return 0;
    std::vector<float> decoded(count_, std::numeric_limits<float>::quiet_NaN());
    gradlane_lane_runs lane;
    for (size_t i = 0; i < kMaxLanes; ++i) {
      std::memcpy(&lane, tensors_.runs.data() + i * sizeof lane, sizeof lane);
      for (uint64_t k = 0; k < lane.count; ++k) {
        gradlane_run run;
        std::memcpy(&run, tensors_.runs.data() + lane.table + k * sizeof run, sizeof run);
        (void)candidate.codec.there.decode(tensors_.runs.subspan(run.at, run.bytes),
                                           std::span(decoded).subspan(run.first, run.floats));
      }
    }
    const float* const floats = static_cast<const float*>(tensors_.tensors.front());
    uint64_t wrong = 0;
    for (size_t i = 0; i < count_; ++i) wrong += std::memcmp(&floats[i], &decoded[i], sizeof(float)) != 0 ? 1 : 0;
    return sum_of(wrong);
  }

  bool chooses(const PerfCandidate& candidate) const {
    return !candidate.codec.automatic.empty() || plan_.auto_strategy;
  }

  // Times memcpy; samples are in GB/s. Only rank 0 copies, because ranks on one machine would share its memory
  // bandwidth.
  void time_memcpy(std::vector<double>& samples) {
    trainer_.barrier();
    if (trainer_.rank() == 0) {
      constexpr size_t kLeastBytes = size_t{4} << 20;  // per sample, so that it lasts long enough to be timed
      const size_t copies = std::max(kLeastBytes / bytes_, size_t{1});
      for (int i = 0; i < 4; ++i) {
        const PerfClock::time_point start = PerfClock::now();
        for (size_t k = 0; k < copies; ++k) {
          std::memcpy(scratch_.get(), input_.get(), bytes_);
          asm volatile("" : : "r"(scratch_.get()) : "memory");  // makes sure that each copy happens
        }
        const double nanos = static_cast<double>(nanos_since(start));
        if (i > 0) samples.push_back(static_cast<double>(copies * bytes_) / nanos);
      }
    } else {
      samples.push_back(0);  // not used: only rank 0 prints
    }
    trainer_.barrier();
  }

  // Returns the slowest rank's time of each operation, in us.
  std::vector<double> slowest_of(std::span<const int64_t> times) {
    std::vector<double> slowest;
    for (size_t done = 0; done < times.size(); done += Trainer::kMaxGathered) {
      const size_t n = std::min(Trainer::kMaxGathered, times.size() - done);
      const std::vector<int64_t> all = trainer_.gather(times.subspan(done, n));
      for (size_t i = 0; i < n; ++i) {
        int64_t most = 0;
        for (unsigned rank = 0; rank < trainer_.world(); ++rank) most = std::max(most, all[rank * n + i]);
        slowest.push_back(static_cast<double>(most) / 1e3);
      }
    }
    return slowest;
  }

  // Sets the times of a row. If operations run one at a time, `time_us` is their median. If several run at a time, they
  // share the ring, so `time_us` is the time of all operations divided by their number.
  void set_times(PerfRow& row, const PerfTimes& times) {
    const std::vector<double> slowest = slowest_of(times.each);
    const std::vector<int64_t> all = trainer_.gather({&times.all, 1});
    const double share = 1e3 * plan_.iterations;
    row.least_us = static_cast<double>(std::ranges::min(all)) / share;
    row.most_us = static_cast<double>(std::ranges::max(all)) / share;
    row.mean_us = static_cast<double>(std::accumulate(all.begin(), all.end(), int64_t{0})) / share / trainer_.world();
    row.time_us = plan_.concurrent > 1 ? row.most_us : median(slowest);
    row.tail = tail_of(slowest);
    row.algbw = static_cast<double>(bytes_) / row.time_us / 1e3;
    row.busbw = row.algbw * bus_share(row.op, trainer_.world());
    row.vs_memcpy = row.memcpy_gbps > 0 ? row.algbw / row.memcpy_gbps : 0;
    row.burst_bytes = load_.burst_bytes();
  }

  uint64_t sum_of(uint64_t number) {
    const int64_t own = static_cast<int64_t>(number);
    uint64_t sum = 0;
    for (const int64_t each : trainer_.gather({&own, 1})) sum += static_cast<uint64_t>(each);
    return sum;
  }

  bool keeps(const PerfCandidate& candidate) const {
    return plan_.feedback && reduces(perf_kind(candidate.op)) && candidate.codec.there.has_feedback();
  }

  // Returns the number of wrong elements of all ranks in the latest result, plus the number of ranks whose result
  // differs from that of rank 0. If several tensors are in flight, it counts them for each tensor. `before`: the states
  // before the latest operation.
  uint64_t count_wrong(const PerfCandidate& candidate, std::span<const float> before) {
    if (!plan_.check) return 0;
    // A codec that scans the whole tensor gives another result if the tensor is divided into operations.
    const bool divided = tensors_.together != 1 && candidate.codec.there.passes() != 0;
    uint64_t wrong = 0;
    const size_t used = std::min<size_t>(tensors_.tensors.size(), std::max(plan_.iterations, plan_.warmup));
    for (const void* const tensor : std::span(tensors_.tensors).first(used)) {
      wrong += sum_of(
          before.empty() ? data_.count_wrong(candidate.op, candidate.strategy, candidate.codec, tensor, count_, divided)
                         : count_wrong_with_states(candidate, before));
      if (candidate.op == PerfOp::kReduceScatter) continue;  // each rank has another block
      const int64_t hash = static_cast<int64_t>(gradlane_hash(tensor, bytes_));
      const std::vector<int64_t> hashes = trainer_.gather({&hash, 1});
      for (const int64_t each : hashes) wrong += each == hashes.front() ? 0 : 1;
    }
    return wrong;
  }

  // Counts elements that are wrong although states are kept. No value may get lost: the inputs and the states before
  // must equal the result and the states after. This rule does not hold with momentum among the states, or with a
  // second codec for the return path. It does not hold either with codecs that replace the sum by another result
  // (Codec::finishes()). For all of these, results must only be finite.
  uint64_t count_wrong_with_states(const PerfCandidate& candidate, std::span<const float> before) {
    const float* const result = static_cast<const float*>(tensors_.tensors.front());
    const Codec& codec = candidate.codec.there;
    if ((codec.states() > 1 && codec.row().is_additive) || codec.finishes() || candidate.codec.back) {
      return static_cast<uint64_t>(std::count_if(result, result + count_, [](float x) { return !std::isfinite(x); }));
    }
    double* const state_change = static_cast<double*>(trainer_.allocate(count_ * sizeof(double)));
    for (size_t i = 0; i < count_; ++i) {
      state_change[i] = 0;
      for (size_t at = i; at < before.size(); at += count_) {
        state_change[i] += static_cast<double>(before[at]) - static_cast<double>(tensors_.states[at]);
      }
    }
    trainer_.run(PerfOp::kAllReduce, state_change, count_, GRADLANE_FLOAT64, nullptr, "raw", GRADLANE_SUM, nullptr);
    const size_t wrong = data_.count_wrong_with_states(candidate.op, candidate.codec, result, state_change, count_);
    trainer_.free(state_change);
    return wrong;
  }

  PerfRow make_row(const PerfCandidate& candidate, double sent, uint64_t wrong, double memcpy_gbps) const {
    const unsigned world = trainer_.world();
    // Operations with floats, and with results as runs, were sent, too.
    const double kinds = 1.0 + (plan_.encoded ? 1 : 0) + (tensors_.runs.empty() ? 0 : 1);
    const double operations = kinds * plan_.iterations;
    const double least = static_cast<double>(bytes_) * least_share(candidate.op, world) * operations * world;
    PerfRow row;
    row.op = candidate.op;
    row.strategy = candidate.strategy.name().view();
    row.codec = candidate.codec.name();
    row.bytes = bytes_;
    row.count = count_;
    row.together = tensors_.together;
    row.wire_ratio = world > 1 && sent > 0 ? least / sent : 0;
    row.memcpy_gbps = memcpy_gbps;
    row.wrong = wrong;
    return row;
  }

  PerfSettings plan_;
  std::vector<std::string> unfit_;  // reasons why codecs are left out
  Trainer trainer_;
  PerfData data_;
  Load load_;
  // The following belong to the size that is being measured.
  size_t count_ = 0;
  size_t bytes_ = 0;
  BenchMemory input_{nullptr, nullptr};
  BenchMemory scratch_{nullptr, nullptr};  // target of memcpy
  PerfTensors tensors_;
  std::vector<StrategyId> allowed_;
};

}  // namespace

int run_perf(const PerfOptions& options) {
  const PerfSettings plan = make_perf_settings(options);
  try {
    return Perf(plan).run();
  } catch (const PerfError& error) {
    fmt::print(stderr, "gradlane perf: {}\n", error.what());
    return 1;
  }
}

}  // namespace gradlane
