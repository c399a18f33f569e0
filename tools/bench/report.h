// report.h - output of `gradlane bench codec`: tables, the paper's engine compared with this CPU, JSON
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
  double gb_per_s;         // GB/s of fp32
  double memcpy_gb_per_s;  // speed of memcpy, sampled in turn with the operation
  double vs_memcpy;        // median, over pairs of samples, of the operation's speed divided by memcpy's
  double ratio;            // fp32 bytes per encoded byte
  size_t ranks;            // number of ranks; `vnmse` is the error of their mean
  double vnmse;            // Quality::vnmse(), which may be not finite
};

struct EngineRow {
  std::string codec;
  std::string data;
  EngineFigure figure;
};

// Returns the median; of two middle values, the upper one. `values` must not be empty.
[[nodiscard]] double median(std::vector<double> values);

// Print a table, which has one data set and block size, a line per codec and ISA, and a column per operation. Lines are
// printed as soon as they are measured; the `cells` of a line may lack operations. print_table_foot() takes all cells
// of the table.
void print_table_head(const Samples& data, size_t block_bytes, std::span<const BenchOp> ops);
void print_table_line(std::span<const BenchOp> ops, std::span<const BenchRow> cells);
void print_table_foot(std::span<const BenchRow> cells);

// Prints a line per codec and data: the engine's figures, and the best of `rows` for the same codec and data.
void print_engine(std::span<const EngineRow> engine, std::span<const BenchRow> rows);

// Returns JSON; docs/codecs.md, "Measuring", describes the fields.
[[nodiscard]] std::string to_json(std::span<const BenchRow> rows, std::span<const EngineRow> engine);

}  // namespace gradlane
