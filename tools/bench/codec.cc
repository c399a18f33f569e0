// codec.cc - `gradlane bench codec`: speed and ratio of the codecs, and memcpy of the same blocks for comparison
#include "tools/bench/codec.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/parse.h"
#include "config/values.h"
#include "sim/data.h"
#include "tools/bench/codec_list.h"
#include "tools/bench/engine_model.h"
#include "tools/bench/pool.h"
#include "tools/bench/report.h"
#include "tools/bench/samples.h"

namespace gradlane {
namespace {

using Clock = std::chrono::steady_clock;
using Names = std::vector<std::string>;

const Names kQuickData = {"laplace-1e-3", "denormals-10%", "outliers-0.1%"};
const Names kUsualData = {"laplace-1e-3"};
const std::vector<size_t> kAllBlocks = {1408, 8 << 10, 1 << 20, 64 << 20};
const std::vector<size_t> kQuickBlocks = {1408, 8 << 10};
const std::vector<size_t> kUsualBlocks = {1408, 1 << 20};

constexpr size_t kMaxBlock = size_t{1} << 30;

// Returns an example of each codec. If `full` is set, adds an example with the codec's option, if it has one.
Names default_codecs(bool full) {
  Names names = all_codecs();
  for (const CodecRow& row : codec_table()) {
    if (!full || row.option == nullptr) continue;
    names.insert(std::ranges::find(names, row.example) + 1, std::string(row.example) + "," + row.option);
  }
  return names;
}

// The duration of a row's measurement.
struct Effort {
  double sample_seconds;  // least duration of a sample, unless one pass takes longer
  double row_seconds;     // limit for all samples of a row, of which there are kMinRounds to kMaxRounds
};
constexpr Effort kFull = {2e-3, 80e-3};
constexpr Effort kQuick = {0.5e-3, 9e-3};
constexpr size_t kMinRounds = 3;
constexpr size_t kMaxRounds = 31;

// ---- Timing

// An operation to time. A sparse codec that repeats the same data with its states selects more elements each time.
// `forgets` is set for such operations: their states are cleared before each pass.
struct Pass {
  void (*run)(const Codec&, BenchPool&);
  bool forgets;
};

Pass pass_of(const BenchOp& op, const Codec& codec) {
  return {op.run, op.keeps && codec.row().layout == Form::kSparse};
}

double seconds(const Pass& pass, const Codec& codec, BenchPool& pool, size_t repeats) {
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  auto start = Clock::now();
  if (!pass.forgets) {
    for (size_t i = 0; i < repeats; ++i) pass.run(codec, pool);
    return since(start);
  }
  double sum = 0;
  for (size_t i = 0; i < repeats; ++i) {
    pool.clear_states();
    start = Clock::now();
    pass.run(codec, pool);
    sum += since(start);
  }
  return sum;
}

// Returns the number of repeats that make one sample. The first pass warms up.
size_t calibrate(const Pass& pass, const Codec& codec, BenchPool& pool, double sample_seconds) {
  pass.run(codec, pool);
  const double once = std::max(seconds(pass, codec, pool, 1), 1e-9);
  return std::max<size_t>(1, static_cast<size_t>(sample_seconds / once));
}

// Measures one row. The caller fills in the fields that are the same for all of a codec's rows.
BenchRow measure(const BenchOp& op, const Codec& codec, BenchPool& pool, const Effort& effort) {
  const Pass pass = pass_of(op, codec);
  const Pass copy = {copy_blocks, false};
  const size_t op_repeats = calibrate(pass, codec, pool, effort.sample_seconds);
  const size_t copy_repeats = calibrate(copy, codec, pool, effort.sample_seconds);
  const auto gb = [&](size_t repeats) { return static_cast<double>(repeats * pool.total_bytes()) / 1e9; };
  std::vector<double> speeds, copies, pairs;
  const auto start = Clock::now();
  const auto spent = [&start] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  while (pairs.size() < kMinRounds || (pairs.size() < kMaxRounds && spent() < effort.row_seconds)) {
    copies.push_back(gb(copy_repeats) / seconds(copy, codec, pool, copy_repeats));
    speeds.push_back(gb(op_repeats) / seconds(pass, codec, pool, op_repeats));
    pairs.push_back(speeds.back() / copies.back());
  }
  return {.codec = codec.name(),
          .isa = isa_name(codec.isa()),
          .op = op.name,
          .data = {},
          .block_bytes = pool.block_bytes(),
          .gb_per_s = median(speeds),
          .memcpy_gb_per_s = median(copies),
          .vs_memcpy = median(pairs),
          .ratio = 0,
          .ranks = 0,
          .vnmse = 0};
}

// ---- What to measure

const Names& or_default(const Names& chosen, const Names& fallback) { return chosen.empty() ? fallback : chosen; }

void require_known(const std::string& what, const Names& chosen, const Names& known) {
  for (const std::string& name : chosen) {
    if (std::ranges::find(known, name) != known.end()) continue;
    throw SetupError(fmt::format("unknown {} '{}'; allowed: {}", what, name, fmt::join(known, ", ")));
  }
}

// Without names, returns all ISAs of this CPU or, if `best` is set, the one that gradlane uses.
std::vector<Isa> chosen_isas(const Names& names, bool best) {
  std::vector<Isa> isas;
  Names known;
  for (const Isa isa : kIsas) known.emplace_back(isa_name(isa));
  require_known("ISA", names, known);
  const Isa pinned = select_isa();  // throws for an unusable GRADLANE_ISA, whatever `names` says
  if (names.empty() && (best || std::getenv("GRADLANE_ISA") != nullptr)) return {pinned};
  for (const Isa isa : kIsas) {
    const bool named = std::ranges::find(names, isa_name(isa)) != names.end();
    if (named && !isa_supported(isa)) throw SetupError(fmt::format("this CPU does not support {}", isa_name(isa)));
    if (named || (names.empty() && isa_supported(isa))) isas.push_back(isa);
  }
  return isas;
}

size_t parse_block(const std::string& text) {
  const auto bytes = parse_decimal(text, sizeof(float), kMaxBlock);
  if (bytes && *bytes % sizeof(float) == 0) return *bytes;
  throw SetupError(fmt::format("block size '{}': must be a multiple of 4 from 4 to {} bytes", text, kMaxBlock));
}

// Returns the operations that `chosen` names. If it is empty, returns those that at least one of the codecs has. Throws
// SetupError if none of the codecs has a named operation.
std::vector<BenchOp> chosen_ops(const Names& chosen, const Names& codecs) {
  std::vector<BenchOp> ops;
  for (const BenchOp& op : bench_ops()) {
    const auto can = [&op](const std::string& name) { return op.possible(find_codec(name, Isa::kScalar)); };
    const bool named = std::ranges::find(chosen, op.name) != chosen.end();
    const bool possible = std::ranges::any_of(codecs, can);
    if (named && !possible) {
      Names able;
      std::ranges::copy_if(default_codecs(true), std::back_inserter(able), can);
      throw SetupError(fmt::format("operation '{}': none of the chosen codecs supports it: {}; codecs that do: {}",
                                   op.name, fmt::join(codecs, ", "), fmt::join(able, ", ")));
    }
    if (named || (chosen.empty() && possible)) ops.push_back(op);
  }
  return ops;
}

struct Plan {
  Names codecs;
  std::vector<Isa> isas;
  std::vector<size_t> blocks;
  std::vector<Samples> data;
  std::vector<BenchOp> ops;
  Effort effort;

  [[nodiscard]] size_t rows() const { return codecs.size() * isas.size() * blocks.size() * data.size() * ops.size(); }
};

Plan make_plan(const CodecBenchOptions& options) {
  Plan plan;
  if (options.quick && options.full) throw SetupError("--quick and --full: name one of them");
  const bool usual = !options.quick && !options.full;
  plan.codecs = or_default(codec_list(options.codecs), default_codecs(options.full));
  for (const std::string& name : plan.codecs) (void)find_codec(name, Isa::kScalar);
  plan.isas = chosen_isas(options.isas, usual);
  for (const std::string& text : options.blocks) plan.blocks.push_back(parse_block(text));
  if (plan.blocks.empty()) plan.blocks = usual ? kUsualBlocks : options.quick ? kQuickBlocks : kAllBlocks;
  plan.data = make_samples(or_default(options.data, usual ? kUsualData : options.quick ? kQuickData : data_names()));
  require_known("operation", options.ops, bench_op_names());
  plan.ops = chosen_ops(options.ops, plan.codecs);
  plan.effort = options.quick ? kQuick : kFull;
  return plan;
}

// ---- Running it

// Shows on standard error how many rows are done: on a terminal one line that changes, elsewhere a line now and then.
class Progress {
 public:
  explicit Progress(size_t total) : total_(total), terminal_(isatty(STDERR_FILENO) != 0) {}

  // Counts a row, which is measured next.
  void step(std::string_view codec, size_t block_bytes) {
    const auto now = Clock::now();
    if (now - told_ >= (terminal_ ? kOften : kSeldom)) {
      told_ = now;
      const double since = std::chrono::duration<double>(now - start_).count();
      const std::string line =
          fmt::format("{} of {} rows, {:.0f} s: {}, blocks of {}", done_, total_, since, codec, size_text(block_bytes));
      terminal_ ? fmt::print(stderr, "\r{:<{}}", line, shown_) : fmt::print(stderr, "{}\n", line);
      shown_ = line.size();
    }
    ++done_;
  }
  void clear() {
    if (terminal_ && shown_ != 0) fmt::print(stderr, "\r{:{}}\r", "", shown_);
    shown_ = 0;
  }

 private:
  static constexpr std::chrono::milliseconds kOften{200};
  static constexpr std::chrono::milliseconds kSeldom{5000};

  size_t total_;
  size_t done_ = 0;
  bool terminal_;
  size_t shown_ = 0;  // characters on the terminal's line
  Clock::time_point start_ = Clock::now();
  Clock::time_point told_ = start_;
};

std::vector<EngineRow> engine_rows(const Plan& plan) {
  constexpr size_t kFloats = 1 << 16;
  std::vector<EngineRow> rows;
  std::vector<float> floats(kFloats);
  for (const Samples& data : plan.data) {
    data.fill_arriving(kFloats, floats);
    for (const std::string& name : plan.codecs) {
      const Codec codec = find_codec(name, Isa::kScalar);
      if (!codec.row().engine) continue;
      rows.push_back({codec.name(), data.name(), engine_figure(codec.bits(), codec.option(), floats)});
    }
  }
  return rows;
}

// Returns the most bytes that any block of these codecs can have.
size_t max_block_bytes(const Names& codecs, size_t floats) {
  size_t bytes = 0;
  for (const std::string& name : codecs) bytes = std::max(bytes, find_codec(name, Isa::kScalar).max_bytes(floats));
  return bytes;
}

// Measures the cells of one codec on one ISA.
std::vector<BenchRow> measure_line(const Plan& plan, const Codec& codec, BenchPool& pool, const Samples& data,
                                   const Quality& quality, Progress& progress) {
  std::vector<BenchRow> line;
  const Codec settled = pool.prepared_for(codec);
  pool.encode_with(settled);
  for (const BenchOp& op : plan.ops) {
    progress.step(codec.name(), pool.block_bytes());
    if (!op.possible(codec)) continue;
    pool.clear_states();
    BenchRow& row = line.emplace_back(measure(op, settled, pool, plan.effort));
    row.data = data.name();
    row.ratio = quality.ratio();
    row.ranks = data.ranks();
    row.vnmse = quality.vnmse();
  }
  return line;
}

std::vector<BenchRow> measure_table(const Plan& plan, const Samples& data, size_t block_bytes, bool print,
                                    Progress& progress) {
  std::vector<BenchRow> table;
  const size_t floats = block_bytes / sizeof(float);
  BenchPool pool(floats, max_block_bytes(plan.codecs, floats), data);
  if (print) print_table_head(data, block_bytes, plan.ops);
  for (const std::string& name : plan.codecs) {
    const Quality quality = data.quality(find_codec(name, plan.isas.back()), floats);  // the same on all ISAs
    for (const Isa isa : plan.isas) {
      const std::vector<BenchRow> line = measure_line(plan, find_codec(name, isa), pool, data, quality, progress);
      progress.clear();
      if (print && !line.empty()) print_table_line(plan.ops, line);
      table.insert(table.end(), line.begin(), line.end());
    }
  }
  if (print) print_table_foot(table);
  return table;
}

// Measures blocks of a packet's length.
class PacketBench {
 public:
  static constexpr size_t kFloats = 1408 / sizeof(float);

  PacketBench(const Codec& codec, const Samples& data, const Effort& effort)
      : effort_(effort), pool_(kFloats, codec.max_bytes(kFloats), data), codec_(pool_.prepared_for(codec)) {
    pool_.encode_with(codec_);
  }

  // Measures the operation of that name from bench_op_names(). Returns nothing if the codec does not have it.
  std::optional<BenchRow> measured(std::string_view name) {
    const auto ops = bench_ops();
    const auto op = std::ranges::find(ops, name, &BenchOp::name);
    if (!op->possible(codec_)) return std::nullopt;
    return measure(*op, codec_, pool_, effort_);
  }

 private:
  const Effort effort_;
  BenchPool pool_;
  const Codec codec_;
};

const char* merge_name(const Codec& codec) { return codec.row().is_additive ? "hop" : "decode_add"; }

}  // namespace

CodecFigures codec_figures(const Codec& codec, const Samples& data, bool quick) {
  PacketBench bench(codec, data, quick ? kQuick : kFull);
  const auto speed = [&](const char* name) {
    const auto row = bench.measured(name);
    return row ? row->vs_memcpy : 0;
  };
  return {.ratio = data.quality(codec, PacketBench::kFloats).ratio(),
          .encode = speed("encode"),
          .decode = speed("decode"),
          .merge = speed(merge_name(codec)),
          .scan = speed("look")};
}

CodecTimes codec_times(const Codec& codec, const Samples& data) {
  PacketBench bench(codec, data, kQuick);
  const auto nanos = [&](const char* name) {
    const auto row = bench.measured(name);
    return row ? sizeof(float) / row->gb_per_s : 0;
  };
  return {
      .encode = nanos("encode"), .decode = nanos("decode"), .merge = nanos(merge_name(codec)), .scan = nanos("look")};
}

std::vector<std::string> bench_op_names() {
  Names names;
  for (const BenchOp& op : bench_ops()) names.emplace_back(op.name);
  return names;
}

void run_codec_bench(const CodecBenchOptions& options) {
  const Plan plan = make_plan(options);
  Progress progress(plan.rows());
  std::vector<BenchRow> rows;
  for (const Samples& data : plan.data) {
    for (const size_t block_bytes : plan.blocks) {
      const std::vector<BenchRow> table = measure_table(plan, data, block_bytes, !options.json, progress);
      rows.insert(rows.end(), table.begin(), table.end());
    }
  }
  const std::vector<EngineRow> engine = engine_rows(plan);
  if (options.json) {
    fmt::print("{}\n", to_json(rows, engine));
  } else {
    print_engine(engine, rows);
  }
}

}  // namespace gradlane
