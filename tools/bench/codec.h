// codec.h - `gradlane bench codec`: speed and ratio of the codecs beside memcpy of the same run
#pragma once

#include <string>
#include <vector>

#include "compress/codec.h"
#include "tools/bench/samples.h"

namespace gradlane {

// As the user wrote them. Empty lists stand for everything (with `quick`: for what matters most).
struct CodecBenchOptions {
  std::vector<std::string> codecs;
  std::vector<std::string> isas;
  std::vector<std::string> blocks;  // bytes of fp32
  std::vector<std::string> data;    // as make_samples() takes them
  std::vector<std::string> ops;     // of bench_op_names()
  bool quick = false;
  bool json = false;
};

[[nodiscard]] std::vector<std::string> bench_op_names();

// Measures and prints to standard output, progress to standard error. Throws SetupError for unknown names and data, an
// ISA this CPU lacks, unusable block sizes, and operations that none of the codecs has.
void run_codec_bench(const CodecBenchOptions& options);

// Of packets' worth of data: fp32 bytes per encoded byte, and speeds beside memcpy. merge: a hop, or, of a codec that
// does not add, adding decoded values up; look: all passes over a tensor that come first, 0: there are none.
struct CodecFigures {
  double ratio;
  double encode;
  double decode;
  double merge;
  double look;
};
[[nodiscard]] CodecFigures codec_figures(const Codec& codec, const Samples& data, bool quick);

// The same quickly, in ns per element.
struct CodecTimes {
  double encode;
  double decode;
  double merge;
  double look;
};
[[nodiscard]] CodecTimes codec_times(const Codec& codec, const Samples& data);

}  // namespace gradlane
