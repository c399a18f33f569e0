// spans.cc - spans that trainers have recorded: files with lines of JSON, times by the kernel's monotonic clock
#include "tools/trace/spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/read_file.h"
#include "tools/admin/json_fields.h"

namespace gradlane {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;

}  // namespace

std::vector<TrainerSpan> read_spans(const std::string& path) {
  FileText read = read_file(path, kMostBytes + 1);
  if (!read.fault.empty()) throw SetupError(fmt::format("cannot read {}: {}", path, read.fault));
  if (read.text.size() > kMostBytes) throw SetupError(fmt::format("{}: has more than 1 GiB of spans", path));
  std::istringstream file(std::move(read.text));
  std::vector<TrainerSpan> spans;
  std::string line;
  while (std::getline(file, line)) {
    const auto span = nlohmann::json::parse(line, nullptr, false);
    if (file.eof() && !span.is_object()) break;  // the last line is incomplete
    if (!span.is_object() || !span.contains("begin_ns") || !span.contains("end_ns") || !span.contains("rank")) {
      throw SetupError(fmt::format("{}: '{:.40}' is not a span of gradlane.torch.Spans", path, line));
    }
    spans.push_back({.rank = static_cast<unsigned>(number_at(span, "rank")),
                     .category = text_at(span, "category"),
                     .name = text_at(span, "name"),
                     .begin = number_at(span, "begin_ns"),
                     .end = std::max(number_at(span, "begin_ns"), number_at(span, "end_ns"))});
  }
  return spans;
}

std::vector<TrainerSpan> cut_spans(std::span<const TrainerSpan> spans, Nanos from, Nanos until) {
  std::vector<TrainerSpan> cut;
  for (const TrainerSpan& it : spans) {
    if (it.end < from || it.begin >= until) continue;
    TrainerSpan& span = cut.emplace_back(it);
    span.begin = std::max(it.begin, from) - from;
    span.end = it.end - from;
  }
  std::ranges::stable_sort(cut, {}, [](const TrainerSpan& it) { return std::pair(it.begin, ~it.end); });
  return cut;
}

}  // namespace gradlane
