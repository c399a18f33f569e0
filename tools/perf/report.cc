// report.cc - output of `gradlane perf`: a table like that of nccl-tests, JSON, or the format of other tools
#include "tools/perf/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tools/perf/formats.h"
#include "tools/stats/parts.h"

namespace gradlane {
namespace {

constexpr const char* kLine = "{:>11} {:>11} {:>13} {:>18} {:>22} {:>10} {:>7} {:>7} {:>6} {:>7}\n";
constexpr const char* kTailLine = "{:>11} {:>13} {:>18} {:>22} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7} {:>7}\n";

std::string size_text(size_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return fmt::format("{} {}", bytes, units[unit]);
}

std::string wrong_text(const PerfRow& row, bool checked) { return checked ? fmt::format("{}", row.wrong) : "-"; }

std::string op_text(const PerfRow& row) {
  return (row.together == 1 ? "" : fmt::format("{} ", row.together)) + perf_op_name(row.op);
}

// Prints remarks that apply to all rows.
void print_remarks(const PerfSettings& plan) {
  if (plan.together != std::vector{1U})
    fmt::print("# {} operations, all submitted at once; time: until all are done\n", fmt::join(plan.together, ", "));
  if (plan.concurrent > 1)
    fmt::print(
        "# {} operations in flight at a time; time: total time / operations; percentiles: of single operations\n",
        plan.concurrent);
  if (plan.background > 0)
    fmt::print("# with 1 of 16 operations, each rank sends a burst of TCP to the next over {}; target p99/p50: {}\n",
               plan.interface, plan.background);
  if (plan.percentiles && plan.iterations < 1000)
    fmt::print("# p99.9 is the slowest of {} times{}; use -n 1000 for a better estimate\n", plan.iterations,
               plan.iterations < 100 ? ", as p99 is" : "");
}

}  // namespace

void print_perf_head(const PerfSettings& plan, unsigned world) {
  if (plan.format != PerfFormat::kTable) return;
  const bool floating = is_floating(static_cast<ElementType>(plan.type.type));
  const std::string reduction = picks(plan.reduction) ? fmt::format(", {}", reduction_name(plan.reduction)) : "";
  fmt::print("# {} ranks, {} {}{}, {} iterations after {}\n", world, plan.type.name, floating ? plan.data : "random",
             reduction, plan.iterations, plan.warmup);
  print_remarks(plan);
  if (plan.percentiles) {
    fmt::print(kTailLine, "size", "op", "strategy", "codec", "p50", "p90", "p99", "p99.9", "max", "p99/p50", "busbw",
               "#wrong");
    fmt::print(kTailLine, "(B)", "", "", "", "(us)", "(us)", "(us)", "(us)", "(us)", "", "(GB/s)", "");
  } else {
    fmt::print(kLine, "size", "count", "op", "strategy", "codec", "time", "algbw", "busbw", "wire", "#wrong");
    fmt::print(kLine, "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "ratio", "");
  }
  std::fflush(stdout);
}

void print_perf_row(const PerfSettings& plan, const PerfRow& row) {
  if (plan.format != PerfFormat::kTable) return;
  if (plan.percentiles) {
    const Tail& tail = row.tail;
    fmt::print(kTailLine, row.bytes, op_text(row), row.strategy, row.codec, digits(tail.p50), digits(tail.p90),
               digits(tail.p99), digits(tail.p999), digits(tail.most), digits(tail.ratio()), digits(row.busbw),
               wrong_text(row, plan.check));
  } else {
    fmt::print(kLine, row.bytes, row.count, op_text(row), row.strategy, row.codec, digits(row.time_us),
               digits(row.algbw), digits(row.busbw), row.wire_ratio > 0 ? digits(row.wire_ratio) : "-",
               wrong_text(row, plan.check));
  }
  if (row.burst_bytes > 0) fmt::print("#   bursts of {} bytes\n", row.burst_bytes);
  if (row.encoded) {
    fmt::print(
        "#   from encoded contributions, {} bytes per float, encoded at {} GB/s of floats: {} x the {} us from "
        "floats\n",
        digits(row.encoded->bytes_per_float), digits(row.encoded->encode_gbps),
        digits(row.time_us / row.encoded->floats_us), digits(row.encoded->floats_us));
    if (row.encoded->runs_us > 0)
      fmt::print("#   with results as encoded runs, too: {} x the time from floats\n",
                 digits(row.encoded->runs_us / row.encoded->floats_us));
  }
  if (!row.chosen.empty()) fmt::print("#   {} chose {}\n", row.codec, row.chosen);
  std::fflush(stdout);
}

namespace {

void print_left_out(std::span<const std::string> skipped) {
  for (const std::string& each : skipped) fmt::print("# left out: {}\n", each);
}

void print_foot(std::span<const PerfRow> rows, std::span<const std::string> skipped, bool checked) {
  const size_t largest = std::ranges::max(rows, {}, &PerfRow::bytes).bytes;
  std::string line;
  for (const PerfRow& row : rows) {
    if (row.bytes != largest) continue;
    line += fmt::format("\n#   {:<13} {:<18} {:<22} memcpy {} GB/s, algbw is {:.3f} of that", perf_op_name(row.op),
                        row.strategy, row.codec, digits(row.memcpy_gbps), row.vs_memcpy);
  }
  fmt::print("# compared with memcpy of {} on rank 0, timed right before and after:{}\n", size_text(largest), line);
  print_left_out(skipped);
  uint64_t wrong = 0;
  for (const PerfRow& row : rows) wrong += row.wrong;
  if (!checked) {
    fmt::print("# results were not checked\n");
  } else if (wrong == 0) {
    fmt::print("# all results are as the codec promises, and the same on all ranks\n");
  } else {
    fmt::print("# WRONG RESULTS: {} elements are not as the codec promises, or differ between ranks\n", wrong);
  }
}

nlohmann::json tail_json(const Tail& tail) {
  return {{"p50_us", tail.p50},    {"p90_us", tail.p90},  {"p99_us", tail.p99},
          {"p99_9_us", tail.p999}, {"max_us", tail.most}, {"p99_over_p50", tail.ratio()}};
}

std::string to_json(const PerfSettings& plan, unsigned world, std::span<const PerfRow> rows,
                    std::span<const std::string> skipped) {
  nlohmann::json result = {{"world", world},
                           {"type", plan.type.name},
                           {"data", plan.data},
                           {"seed", plan.seed},
                           {"iterations", plan.iterations},
                           {"warmup", plan.warmup},
                           {"checked", plan.check},
                           {"reduction", reduction_name(plan.reduction)},
                           {"feedback", plan.feedback},
                           {"concurrent", plan.concurrent},
                           {"skipped", skipped},
                           {"rows", nlohmann::json::array()}};
  for (const PerfRow& row : rows) {
    result["rows"].push_back({{"op", perf_op_name(row.op)},
                              {"strategy", row.strategy},
                              {"codec", row.codec},
                              {"bytes", row.bytes},
                              {"count", row.count},
                              {"together", row.together},
                              {"time_us", row.time_us},
                              {"mean_us", row.mean_us},
                              {"least_us", row.least_us},
                              {"most_us", row.most_us},
                              {"algbw", row.algbw},
                              {"busbw", row.busbw},
                              {"wire_ratio", row.wire_ratio},
                              {"memcpy_gbps", row.memcpy_gbps},
                              {"vs_memcpy", row.vs_memcpy},
                              {"wrong", row.wrong}});
    nlohmann::json& json = result["rows"].back();
    if (!row.chosen.empty()) json["chosen"] = row.chosen;
    if (row.encoded) {
      json["encoded"] = {{"bytes_per_float", row.encoded->bytes_per_float},
                         {"encode_gbps", row.encoded->encode_gbps},
                         {"floats_us", row.encoded->floats_us}};
      if (row.encoded->runs_us > 0) json["encoded"]["runs_us"] = row.encoded->runs_us;
    }
    if (plan.percentiles) json["percentiles"] = tail_json(row.tail);
    if (plan.background > 0) json["burst_bytes"] = row.burst_bytes;
  }
  if (plan.background > 0) result["background"] = {{"aim", plan.background}, {"interface", plan.interface}};
  return result.dump();
}

}  // namespace

void print_perf_end(const PerfSettings& plan, unsigned world, std::span<const PerfRow> rows,
                    std::span<const std::string> skipped) {
  switch (plan.format) {
    case PerfFormat::kTable:
      print_foot(rows, skipped, plan.check);
      break;
    case PerfFormat::kJson:
      fmt::print("{}\n", to_json(plan, world, rows, skipped));
      break;
    case PerfFormat::kOsu:
      fmt::print("{}", osu_text(plan, rows));
      print_left_out(skipped);
      break;
    case PerfFormat::kNccl:
      fmt::print("{}", nccl_text(plan, world, rows));
      print_left_out(skipped);
      break;
  }
  std::fflush(stdout);
}

}  // namespace gradlane
