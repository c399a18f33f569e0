// report.cc - what `gradlane perf` prints: a table like that of nccl-tests, or JSON
#include "tools/perf/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tools/stats/parts.h"

namespace gradlane {
namespace {

constexpr const char* kLine = "{:>11} {:>11} {:>13} {:>18} {:>22} {:>10} {:>7} {:>7} {:>6} {:>7}\n";

std::string size_text(size_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return fmt::format("{} {}", bytes, units[unit]);
}

std::string wrong_text(const PerfRow& row, bool checked) { return checked ? fmt::format("{}", row.wrong) : "-"; }

}  // namespace

void print_perf_head(const PerfPlan& plan, unsigned world) {
  const bool floating = plan.type.type == GRADLANE_FLOAT32 || plan.type.type == GRADLANE_FLOAT64;
  const std::string reduction = picks(plan.reduction) ? fmt::format(", {}", reduction_name(plan.reduction)) : "";
  fmt::print("# {} ranks, {} {}{}, {} iterations after {}\n", world, plan.type.name, floating ? plan.data : "random",
             reduction, plan.iterations, plan.warmup);
  if (plan.together != std::vector{1U})
    fmt::print("# {} operations, all submitted at once: time of all\n", fmt::join(plan.together, ", "));
  fmt::print(kLine, "size", "count", "op", "strategy", "codec", "time", "algbw", "busbw", "wire", "#wrong");
  fmt::print(kLine, "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "ratio", "");
  std::fflush(stdout);
}

void print_perf_row(const PerfRow& row, bool checked) {
  const std::string many = row.together == 1 ? "" : fmt::format("{} ", row.together);
  fmt::print(kLine, row.bytes, row.count, many + perf_op_name(row.op), row.strategy, row.codec, digits(row.time_us),
             digits(row.algbw), digits(row.busbw), row.wire_ratio > 0 ? digits(row.wire_ratio) : "-",
             wrong_text(row, checked));
  if (!row.chosen.empty()) fmt::print("#   {} chose {}\n", row.codec, row.chosen);
  std::fflush(stdout);
}

void print_perf_foot(std::span<const PerfRow> rows, std::span<const std::string> skipped, bool checked) {
  const size_t largest = std::ranges::max(rows, {}, &PerfRow::bytes).bytes;
  std::string line;
  for (const PerfRow& row : rows) {
    if (row.bytes != largest) continue;
    line += fmt::format("\n#   {:<13} {:<18} {:<22} memcpy {} GB/s, algbw is {:.3f} of that", perf_op_name(row.op),
                        row.strategy, row.codec, digits(row.memcpy_gbps), row.vs_memcpy);
  }
  fmt::print("# beside memcpy of {} on rank 0, timed right before and after:{}\n", size_text(largest), line);
  for (const std::string& each : skipped) fmt::print("# left out: {}\n", each);
  uint64_t wrong = 0;
  for (const PerfRow& row : rows) wrong += row.wrong;
  if (!checked) {
    fmt::print("# results were not checked\n");
  } else if (wrong == 0) {
    fmt::print("# all results are as the codec promises, and the same on all ranks\n");
  } else {
    fmt::print("# WRONG RESULTS: {} elements that are not as the codec promises, or ranks that differ\n", wrong);
  }
}

std::string to_json(const PerfPlan& plan, unsigned world, std::span<const PerfRow> rows,
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
                              {"algbw", row.algbw},
                              {"busbw", row.busbw},
                              {"wire_ratio", row.wire_ratio},
                              {"memcpy_gbps", row.memcpy_gbps},
                              {"vs_memcpy", row.vs_memcpy},
                              {"wrong", row.wrong}});
    if (!row.chosen.empty()) result["rows"].back()["chosen"] = row.chosen;
  }
  return result.dump();
}

}  // namespace gradlane
