// report.cc - output of `gradlane bench codec`: tables, the paper's engine compared with this CPU, JSON
#include "tools/bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace gradlane {
namespace {

constexpr size_t kCellWidth = 9;  // "12.3 105%"

std::string size_text(size_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

// Returns a speed with three digits: 4.56, 45.6, 456.
std::string speed_text(double speed) {
  if (speed < 9.995) return fmt::format("{:.2f}", speed);
  return speed < 99.95 ? fmt::format("{:.1f}", speed) : fmt::format("{:.0f}", speed);
}

// Returns a share in at most four characters: 4.5%, 45%, 450%, and 45x for 4500 %. It is that large if memcpy was
// interrupted.
std::string percent_text(double share) {
  const double percent = 100 * share;
  if (percent < 9.95) return fmt::format("{:.1f}%", percent);
  return percent < 999.5 ? fmt::format("{:.0f}%", percent) : fmt::format("{:.0f}x", share);
}

std::string error_text(double vnmse) {
  if (!std::isfinite(vnmse)) return "-";
  return vnmse == 0 ? "0" : fmt::format("{:.1e}", vnmse);
}

size_t column_width(const BenchOp& op) { return std::max(kCellWidth, std::string_view(op.label).size()); }

// Returns this CPU's best speed in Gb/s, and the ISA and block size with which it was measured.
std::string best_text(std::span<const BenchRow> rows, const EngineRow& engine, std::string_view op) {
  const BenchRow* best = nullptr;
  for (const BenchRow& row : rows) {
    if (row.codec != engine.codec || row.data != engine.data || row.op != op) continue;
    if (best == nullptr || row.gb_per_s > best->gb_per_s) best = &row;
  }
  if (best == nullptr) return "-";
  return fmt::format("{} ({}, {})", speed_text(8 * best->gb_per_s), best->isa, size_text(best->block_bytes));
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void print_table_head(const Samples& data, size_t block_bytes, std::span<const BenchOp> ops) {
  const std::string of = data.ranks() == 1 ? "one contribution" : fmt::format("the mean of {} ranks", data.ranks());
  fmt::print("\n{}, blocks of {}: vNMSE of {}; GB/s of fp32, also in % of memcpy\n", data.name(),
             size_text(block_bytes), of);
  fmt::print("{:<22} {:<6} {:>5} {:>7}", "codec", "isa", "ratio", "vNMSE");
  for (const BenchOp& op : ops) fmt::print(" {:>{}}", op.label, column_width(op));
  fmt::print("\n");
  std::fflush(stdout);
}

void print_table_line(std::span<const BenchOp> ops, std::span<const BenchRow> cells) {
  const BenchRow& first = cells.front();
  fmt::print("{:<22} {:<6} {:>5.2f} {:>7}", first.codec, first.isa, first.ratio, error_text(first.vnmse));
  for (const BenchOp& op : ops) {
    const auto row = std::ranges::find(cells, op.name, &BenchRow::op);
    const std::string cell =
        row == cells.end() ? "-" : fmt::format("{} {:>4}", speed_text(row->gb_per_s), percent_text(row->vs_memcpy));
    fmt::print(" {:>{}}", cell, column_width(op));
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void print_table_foot(std::span<const BenchRow> cells) {
  std::vector<double> copies;
  for (const BenchRow& cell : cells) copies.push_back(cell.memcpy_gb_per_s);
  fmt::print("memcpy about {} GB/s\n", speed_text(median(copies)));
}

void print_engine(std::span<const EngineRow> engine, std::span<const BenchRow> rows) {
  if (engine.empty()) return;
  fmt::print(
      "\nThe INCEPTIONN paper's engine (8 lanes, 256-bit bursts) at {:.0f} MHz, and the best of one core of this CPU: "
      "Gb/s of fp32\n",
      kEngineClockHz / 1e6);
  fmt::print("{:<22} {:<17} {:>8} {:>10}   {:<23} {}\n", "codec", "data", "compress", "decompress", "CPU encode",
             "CPU decode");
  for (const EngineRow& row : engine) {
    const std::string line = fmt::format("{:<22} {:<17} {:>8} {:>10}   {:<23} {}", row.codec, row.data,
                                         speed_text(row.figure.compress_gbps), speed_text(row.figure.decompress_gbps),
                                         best_text(rows, row, "encode"), best_text(rows, row, "decode"));
    fmt::print("{}\n", line);
  }
}

std::string to_json(std::span<const BenchRow> rows, std::span<const EngineRow> engine) {
  nlohmann::json result = {{"rows", nlohmann::json::array()}, {"engine", nlohmann::json::array()}};
  for (const BenchRow& row : rows) {
    result["rows"].push_back({{"codec", row.codec},
                              {"isa", row.isa},
                              {"op", row.op},
                              {"data", row.data},
                              {"block_bytes", row.block_bytes},
                              {"gb_per_s", row.gb_per_s},
                              {"memcpy_gb_per_s", row.memcpy_gb_per_s},
                              {"vs_memcpy", row.vs_memcpy},
                              {"ratio", row.ratio},
                              {"ranks", row.ranks},
                              {"vnmse", row.vnmse}});
  }
  for (const EngineRow& row : engine) {
    result["engine"].push_back({{"codec", row.codec},
                                {"data", row.data},
                                {"clock_hz", kEngineClockHz},
                                {"compress_gbps", row.figure.compress_gbps},
                                {"decompress_gbps", row.figure.decompress_gbps},
                                {"compress_cycles", row.figure.compress_cycles},
                                {"decompress_cycles", row.figure.decompress_cycles}});
  }
  return result.dump(1);
}

}  // namespace gradlane
