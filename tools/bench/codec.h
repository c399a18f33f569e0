// codec.h - `gradlane bench codec`: speed and ratio of the codecs, and memcpy of the same blocks for comparison
#pragma once

#include <string>
#include <vector>

#include "compress/codec.h"
#include "tools/bench/samples.h"

namespace gradlane {

// The options as the user wrote them. An empty list stands for the most important values, with `full` for all.
struct CodecBenchOptions {
  std::vector<std::string> codecs;
  std::vector<std::string> isas;
  std::vector<std::string> blocks;  // bytes of fp32
  std::vector<std::string> data;    // as make_samples() takes them
  std::vector<std::string> ops;     // names from bench_op_names()
  bool quick = false;
  bool full = false;
  bool json = false;
};

[[nodiscard]] std::vector<std::string> bench_op_names();

// Measures and prints to standard output, progress to standard error. Throws SetupError for unknown names and data, an
// ISA this CPU lacks, unusable block sizes, and operations that none of the codecs has.
void run_codec_bench(const CodecBenchOptions& options);

// Figures for blocks of a packet's length. `ratio` is in fp32 bytes per encoded byte. The other figures are speeds, as
// multiples of memcpy's speed. `merge` is the speed of a hop. If encoded blocks cannot be added, it is the speed of
// decoding a block and adding it. `scan` is the speed of all scans of a tensor before it is encoded; 0 if the codec
// needs none.
struct CodecFigures {
  double ratio;
  double encode;
  double decode;
  double merge;
  double scan;
};
[[nodiscard]] CodecFigures codec_figures(const Codec& codec, const Samples& data, bool quick);

// The times of the same operations, from a quick measurement, in ns per element.
struct CodecTimes {
  double encode;
  double decode;
  double merge;
  double scan;
};
[[nodiscard]] CodecTimes codec_times(const Codec& codec, const Samples& data);

}  // namespace gradlane
