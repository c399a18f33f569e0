// report.h - what `gradlane bench codec` prints: tables, the paper's engine beside this CPU, JSON
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tools/bench/engine_model.h"
#include "tools/bench/pool.h"
#include "tools/bench/samples.h"

namespace gradlane {

// One operation of one codec on one ISA, data set and block size: a cell of a table.
struct BenchRow {
  std::string codec;
  std::string isa;
  std::string op;
  std::string data;
  size_t block_bytes;
  double gb_per_s;         // of fp32
  double memcpy_gb_per_s;  // sampled in turn with it
  double vs_memcpy;        // the median of the pairs' ratios
  double ratio;            // fp32 bytes per encoded byte
  size_t ranks;            // of whose mean vnmse is
  double vnmse;            // Quality::vnmse(): may be not finite
};

struct EngineRow {
  std::string codec;
  std::string data;
  EngineFigure figure;
};

// The upper one of two middle values. `values` must not be empty.
[[nodiscard]] double median(std::vector<double> values);

// A table has one data set and block size, a line per codec and ISA, a column per operation. Lines are printed as they
// are measured; `cells` of a line may lack operations. The foot takes all cells of the table.
void print_table_head(const Samples& data, size_t block_bytes, std::span<const BenchOp> ops);
void print_table_line(std::span<const BenchOp> ops, std::span<const BenchRow> cells);
void print_table_foot(std::span<const BenchRow> cells);

// A line per codec and data: the engine, and the best of `rows` for the same.
void print_engine(std::span<const EngineRow> engine, std::span<const BenchRow> rows);

// docs/codecs.md, "Measuring", has the fields.
[[nodiscard]] std::string to_json(std::span<const BenchRow> rows, std::span<const EngineRow> engine);

}  // namespace gradlane
