// spans.h - what trainers say they did: files of lines of JSON, by the kernel's monotonic clock
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"

namespace gradlane {

// {"rank", "category", "name", "begin_ns", "end_ns"}
struct TrainerSpan {
  unsigned rank = 0;
  std::string category;
  std::string name;
  Nanos begin = 0;
  Nanos end = 0;
};

// Those of a file's lines that are spans; a line that is being written is none. Throws SetupError where the file cannot
// be read, or has other lines.
[[nodiscard]] std::vector<TrainerSpan> read_spans(const std::string& path);

// Those that touch [from, until), from then on, in ns from `from` on.
[[nodiscard]] std::vector<TrainerSpan> cut_spans(std::span<const TrainerSpan> spans, Nanos from, Nanos until);

}  // namespace gradlane
