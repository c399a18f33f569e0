// plan.cc - the options of `gradlane perf`, understood and checked
#include "tools/perf/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/parse.h"
#include "tools/bench/data.h"

namespace gradlane {
namespace {

constexpr std::pair<PerfOp, const char*> kOps[] = {{PerfOp::kAllReduce, "allreduce"},
                                                   {PerfOp::kReduceScatter, "reducescatter"},
                                                   {PerfOp::kAllGather, "allgather"},
                                                   {PerfOp::kBroadcast, "broadcast"}};
// fp16 and bf16 are missing: there is nothing here to compute their sums with.
constexpr PerfType kTypes[] = {{"float32", GRADLANE_FLOAT32, 4},
                               {"float64", GRADLANE_FLOAT64, 8},
                               {"int32", GRADLANE_INT32, 4},
                               {"int64", GRADLANE_INT64, 8},
                               {"bytes", GRADLANE_BYTES, 1}};
constexpr uint64_t kMaxSize = uint64_t{64} << 30;
constexpr uint64_t kMaxIterations = 1000000;
constexpr const char* kSizeText = "a size from 8 to 64G bytes, as in 64K, 16M or 1G";

[[noreturn]] void reject(const char* option, const std::string& text, std::string_view allowed) {
  throw SetupError(fmt::format("{} '{}': must be {}", option, text, allowed));
}

uint64_t parse_number(const char* option, const std::string& text, uint64_t least, uint64_t most,
                      std::string_view allowed) {
  const auto number = parse_decimal(text, least, most);
  if (!number) reject(option, text, allowed);
  return *number;
}

size_t parse_size(const char* option, const std::string& text) {
  const auto size = parse_quantity(text, kShortSizes, 8, kMaxSize);
  if (!size) reject(option, text, kSizeText);
  return *size;
}

std::vector<size_t> parse_sizes(const PerfOptions& options) {
  // One of the two alone is the only size, if the other's default would be on the wrong side of it.
  const bool has_begin = !options.begin.empty();
  const bool has_end = !options.end.empty();
  size_t begin = parse_size("-b", has_begin ? options.begin : "64K");
  size_t end = parse_size("-e", has_end ? options.end : "64M");
  if (!has_begin) begin = std::min(begin, end);
  if (!has_end) end = std::max(begin, end);
  if (end < begin) reject("-e", options.end, fmt::format("no less than -b, which is {} bytes", begin));
  const uint64_t factor =
      parse_number("-f", options.factor.empty() ? "2" : options.factor, 2, 1024, "a whole number from 2 to 1024");
  std::vector<size_t> sizes;
  for (size_t size = begin; size <= end; size *= factor) sizes.push_back(size);
  return sizes;
}

// Names may be separated by blanks or commas; the comma of "inceptionn:10,truncate" separates nothing.
std::vector<std::string> separated(const std::vector<std::string>& texts) {
  std::vector<std::string> names;
  for (const std::string& text : texts) {
    for (size_t at = 0; at <= text.size();) {
      const size_t comma = std::min(text.find(',', at), text.size());
      const std::string name = text.substr(at, comma - at);
      if (name == "truncate" && !names.empty()) {
        names.back() += "," + name;
      } else {
        names.push_back(name);
      }
      at = comma + 1;
    }
  }
  return names;
}

PerfOp parse_op(const std::string& text) {
  std::string plain = text;
  std::erase_if(plain, [](char c) { return c == '-' || c == '_'; });
  for (const auto& [op, name] : kOps) {
    if (plain == name) return op;
  }
  throw SetupError(fmt::format("unknown operation '{}'; allowed: {}", text, fmt::join(perf_op_names(), ", ")));
}

PerfType parse_type(const std::string& text) {
  const auto* const found =
      std::ranges::find(kTypes, text, [](const PerfType& type) { return std::string(type.name); });
  if (found != std::end(kTypes)) return *found;
  throw SetupError(fmt::format("unknown type '{}'; allowed: {}", text, fmt::join(perf_type_names(), ", ")));
}

std::vector<Codec> parse_codecs(const PerfOptions& options, const PerfType& type) {
  std::vector<std::string> names = separated(options.codecs);
  const bool compressible = type.type == GRADLANE_FLOAT32;
  if (names.empty())
    names = compressible ? std::vector<std::string>{std::string(kDefaultCodec), std::string(kDefaultLossyCodec)}
                         : std::vector<std::string>{std::string(kDefaultCodec)};
  std::vector<Codec> codecs;
  for (const std::string& name : names) {
    codecs.push_back(find_codec(name));
    if (!compressible && !codecs.back().row().exact()) {
      throw SetupError(
          fmt::format("--codec '{}': {} travels as it is, only float32 can be compressed; leave --codec "
                      "out, or say raw",
                      name, type.name));
    }
  }
  return codecs;
}

}  // namespace

std::vector<Codec> perf_codecs(const PerfPlan& plan, PerfOp op) {
  if (op == PerfOp::kAllReduce || op == PerfOp::kReduceScatter) return plan.codecs;
  return {codec_of(FloatForm::kFp32, select_isa())};
}

PerfPlan make_perf_plan(const PerfOptions& options) {
  PerfPlan plan;
  plan.sizes = parse_sizes(options);
  const std::string counts = fmt::format("a whole number from 1 to {}", kMaxIterations);
  const std::string from_zero = fmt::format("a whole number from 0 to {}", kMaxIterations);
  const auto number = [](const char* option, const std::string& text, const char* fallback, uint64_t least,
                         const std::string& allowed) {
    return static_cast<unsigned>(parse_number(option, text.empty() ? fallback : text, least, kMaxIterations, allowed));
  };
  plan.iterations = number("-n", options.iterations, "20", 1, counts);
  plan.warmup = number("-w", options.warmup, "5", 0, from_zero);
  for (const std::string& name : separated(options.ops)) plan.ops.push_back(parse_op(name));
  if (plan.ops.empty()) plan.ops = {PerfOp::kAllReduce};
  plan.type = parse_type(options.type.empty() ? "float32" : options.type);
  plan.codecs = parse_codecs(options, plan.type);

  const std::vector<std::string> known = data_names();
  plan.data = options.data.empty() ? "gauss-0.01" : options.data;
  if (std::ranges::find(known, plan.data) == known.end()) {
    throw SetupError(fmt::format("unknown data '{}'; allowed: {}", plan.data, fmt::join(known, ", ")));
  }
  plan.seed = parse_number("--seed", options.seed.empty() ? "1" : options.seed, 0, UINT64_MAX,
                           "a whole number from 0 to 2^64 - 1");
  plan.check = options.check;
  return plan;
}

const char* perf_op_name(PerfOp op) noexcept {
  for (const auto& [known, name] : kOps) {
    if (known == op) return name;
  }
  return "?";
}

std::vector<std::string> perf_op_names() {
  std::vector<std::string> names;
  for (const auto& [op, name] : kOps) names.emplace_back(name);
  return names;
}

std::vector<std::string> perf_type_names() {
  std::vector<std::string> names;
  for (const PerfType& type : kTypes) names.emplace_back(type.name);
  return names;
}

size_t perf_count(const PerfPlan& plan, PerfOp op, size_t bytes, unsigned world) noexcept {
  const bool blocks = op == PerfOp::kReduceScatter || op == PerfOp::kAllGather;
  const size_t unit = blocks ? world : 1;
  return std::max(bytes / plan.type.bytes / unit, size_t{1}) * unit;
}

double least_share(PerfOp op, unsigned world) noexcept {
  const double share = static_cast<double>(world - 1) / world;
  return op == PerfOp::kAllReduce ? 2 * share : share;
}

double bus_share(PerfOp op, unsigned world) noexcept { return op == PerfOp::kBroadcast ? 1 : least_share(op, world); }

}  // namespace gradlane
