// spans.h - spans that trainers have recorded: files with lines of JSON, times by the kernel's monotonic clock
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"

namespace gradlane {

// A line of such a file: {"rank", "category", "name", "begin_ns", "end_ns"}.
struct TrainerSpan {
  unsigned rank = 0;
  std::string category;
  std::string name;
  Nanos begin = 0;
  Nanos end = 0;
};

// Returns the spans of a file. A last line that is still being written is ignored. Throws SetupError if the file cannot
// be read, or has lines that are not spans.
[[nodiscard]] std::vector<TrainerSpan> read_spans(const std::string& path);

// Returns the spans that touch [from, until), in ns since `from`. Spans that begin before `from` are cut there.
[[nodiscard]] std::vector<TrainerSpan> cut_spans(std::span<const TrainerSpan> spans, Nanos from, Nanos until);

}  // namespace gradlane
