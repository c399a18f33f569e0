// formats.cc - results in the format of OSU's micro-benchmarks and of nccl-tests, for programs that read those (no I/O)
#include "tools/perf/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace gradlane {
namespace {

using PerfRows = std::vector<const PerfRow*>;

// Groups rows by operation, strategy, codec and number of parts. Groups are in the order of their first rows.
std::vector<PerfRows> tables_of(std::span<const PerfRow> rows) {
  std::vector<PerfRows> tables;
  for (const PerfRow& row : rows) {
    const auto same = [&row](const PerfRows& table) {
      const PerfRow& first = *table.front();
      return first.op == row.op && first.strategy == row.strategy && first.codec == row.codec &&
             first.together == row.together;
    };
    const auto found = std::ranges::find_if(tables, same);
    if (found != tables.end()) {
      found->push_back(&row);
    } else {
      tables.push_back({&row});
    }
  }
  return tables;
}

std::string what_text(const PerfSettings& plan, const PerfRow& row) {
  std::string text = fmt::format("# gradlane: {} by {}, codec {}", perf_op_name(row.op), row.strategy, row.codec);
  if (row.together > 1) text += fmt::format(", as {} operations", row.together);
  if (plan.concurrent > 1) text += fmt::format(", {} at a time", plan.concurrent);
  return text + "\n";
}

// ---- OSU

const char* osu_op(PerfOp op) {
  switch (op) {
    case PerfOp::kAllReduce:
      return "Allreduce";
    case PerfOp::kReduceScatter:
      return "Reduce_scatter";
    case PerfOp::kAllGather:
      return "Allgather";
    case PerfOp::kBroadcast:
      return "Broadcast";
  }
  return "";
}

const char* osu_type(gradlane_type type) {
  switch (type) {
    case GRADLANE_FLOAT32:
      return "MPI_FLOAT";
    case GRADLANE_FLOAT64:
      return "MPI_DOUBLE";
    case GRADLANE_INT32:
      return "MPI_INT";
    case GRADLANE_INT64:
      return "MPI_INT64_T";
    default:
      return "MPI_CHAR";
  }
}

// ---- nccl-tests

const char* nccl_type(gradlane_type type) {
  switch (type) {
    case GRADLANE_FLOAT32:
      return "float";
    case GRADLANE_FLOAT64:
      return "double";
    case GRADLANE_FLOAT16:
      return "half";
    case GRADLANE_BFLOAT16:
      return "bfloat16";
    case GRADLANE_INT32:
      return "int32";
    case GRADLANE_INT64:
      return "int64";
    default:
      return "uint8";
  }
}

const char* nccl_reduction(const PerfSettings& plan, PerfOp op) {
  if (!reduces(perf_kind(op))) return "none";
  if (plan.reduction == Reduction::kMin) return "min";
  return plan.reduction == Reduction::kMax ? "max" : "sum";
}

std::string nccl_time(double us) {
  if (us >= 10000) return fmt::format("{:7.0f}", us);
  return us >= 100 ? fmt::format("{:7.1f}", us) : fmt::format("{:7.2f}", us);
}

// Adds a row. Bandwidths are computed from the time that the row shows, which is the mean, not the median.
void add_nccl_row(std::string& text, const PerfSettings& plan, unsigned world, const PerfRow& row) {
  const double algbw = static_cast<double>(row.bytes) / row.mean_us / 1e3;
  // nccl-tests' count is the number of elements that a rank gives to all-gather, or gets from reduce-scatter.
  const bool blocks = row.op == PerfOp::kAllGather || row.op == PerfOp::kReduceScatter;
  const std::string wrong = plan.check ? fmt::format("{}", row.wrong) : "N/A";
  fmt::format_to(std::back_inserter(text), "{:>12}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>5}", row.bytes,
                 row.count / (blocks ? world : 1), nccl_type(plan.type.type), nccl_reduction(plan, row.op),
                 row.op == PerfOp::kBroadcast ? 0 : -1, "N/A", "N/A", "N/A", "N/A");
  fmt::format_to(std::back_inserter(text), "  {:>7}  {:6.2f}  {:6.2f}  {:>5}\n", nccl_time(row.mean_us), algbw,
                 algbw * bus_share(row.op, world), wrong);
}

}  // namespace

std::string osu_text(const PerfSettings& plan, std::span<const PerfRow> rows) {
  std::string text;
  const auto out = std::back_inserter(text);
  for (const PerfRows& table : tables_of(rows)) {
    fmt::format_to(out, "\n# OSU MPI {} Latency Test, as printed by gradlane perf\n", osu_op(table.front()->op));
    text += what_text(plan, *table.front());
    fmt::format_to(out, "# Datatype: {}.\n", osu_type(plan.type.type));
    fmt::format_to(out, "{:<10}{:>18}{:>18}{:>18}{:>12}", "# Size", "Avg Latency(us)", "Min Latency(us)",
                   "Max Latency(us)", "Iterations");
    if (plan.percentiles)
      fmt::format_to(out, "{:>18}{:>18}{:>18}", "P50 Tail Lat(us)", "P90 Tail Lat(us)", "P99 Tail Lat(us)");
    fmt::format_to(out, "{}\n", plan.check ? fmt::format("{:>18}", "Validation") : "");
    for (const PerfRow* row : table) {
      fmt::format_to(out, "{:<10}{:18.2f}{:18.2f}{:18.2f}{:12}", row->bytes, row->mean_us, row->least_us, row->most_us,
                     plan.iterations);
      if (plan.percentiles)
        fmt::format_to(out, "{:18.2f}{:18.2f}{:18.2f}", row->tail.p50, row->tail.p90, row->tail.p99);
      fmt::format_to(out, "{}\n", plan.check ? fmt::format("{:>18}", row->wrong == 0 ? "Pass" : "Fail") : "");
    }
  }
  return text;
}

std::string nccl_text(const PerfSettings& plan, unsigned world, std::span<const PerfRow> rows) {
  std::string text;
  const auto out = std::back_inserter(text);
  for (const PerfRows& table : tables_of(rows)) {
    text += what_text(plan, *table.front());
    fmt::format_to(out, "# warmup iters: {} iters: {} agg iters: 1 validation: {} ranks: {}\n#\n", plan.warmup,
                   plan.iterations, plan.check ? 1 : 0, world);
    constexpr const char* kHead = "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {}\n";
    constexpr const char* kColumns = "{:>7}  {:>6}  {:>6}  {:>5}  {:>7}  {:>6}  {:>6}  {:>5}";
    fmt::format_to(out, kHead, "", "", "", "", "", "         out-of-place                       in-place          ");
    fmt::format_to(out, kHead, "size", "count", "type", "redop", "root",
                   fmt::format("{:>7}  {:>6}  {:>6} {:>6}  {:>7}  {:>6}  {:>6} {:>6}", "time", "algbw", "busbw",
                               "#wrong", "time", "algbw", "busbw", "#wrong"));
    fmt::format_to(out, kHead, "(B)", "(elements)", "", "", "",
                   fmt::format(kColumns, "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", ""));
    double sum = 0;
    uint64_t wrong = 0;
    for (const PerfRow* row : table) {
      add_nccl_row(text, plan, world, *row);
      sum += static_cast<double>(row->bytes) / row->mean_us / 1e3 * bus_share(row->op, world);
      wrong += row->wrong;
    }
    fmt::format_to(out, "# Out of bounds values : {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
    fmt::format_to(out, "# Avg bus bandwidth    : {:g}\n#\n", sum / static_cast<double>(table.size()));
  }
  return text;
}

}  // namespace gradlane
