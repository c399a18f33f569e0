// settings.cc - the options of `gradlane perf`, understood and checked
#include "tools/perf/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/parse.h"
#include "config/choices.h"
#include "sim/data.h"

namespace gradlane {
namespace {

struct OpRow {
  PerfOp op;
  const char* name;
  OpKind kind;
};
constexpr OpRow kOps[] = {{PerfOp::kAllReduce, "allreduce", OpKind::kAllReduce},
                          {PerfOp::kReduceScatter, "reducescatter", OpKind::kReduceScatter},
                          {PerfOp::kAllGather, "allgather", OpKind::kAllGather},
                          {PerfOp::kBroadcast, "broadcast", OpKind::kBroadcast}};
constexpr std::pair<const char*, Reduction> kReductions[] = {
    {"sum", Reduction::kSum}, {"min", Reduction::kMin}, {"max", Reduction::kMax}};
constexpr PerfType kTypes[] = {{"float32", GRADLANE_FLOAT32, 4}, {"float64", GRADLANE_FLOAT64, 8},
                               {"float16", GRADLANE_FLOAT16, 2}, {"bfloat16", GRADLANE_BFLOAT16, 2},
                               {"int32", GRADLANE_INT32, 4},     {"int64", GRADLANE_INT64, 8},
                               {"bytes", GRADLANE_BYTES, 1}};
constexpr uint64_t kMaxSize = uint64_t{64} << 30;
constexpr uint64_t kMaxIterations = 1000000;
constexpr uint64_t kMaxConcurrent = 64;  // GL_SLOTS: operations that one trainer can have in flight
constexpr double kLeastAim = 1.1;
constexpr double kMostAim = 10;
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
  // If only one of -b and -e is given, and the other's default is on the wrong side of it, there is a single size.
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

// Returns the names in `texts`, which have blanks or commas between them.
std::vector<std::string> separated(const std::vector<std::string>& texts) {
  std::vector<std::string> names;
  for (const std::string& text : texts) {
    for (size_t at = 0; at <= text.size();) {
      const size_t comma = std::min(text.find(',', at), text.size());
      names.push_back(text.substr(at, comma - at));
      at = comma + 1;
    }
  }
  return names;
}

PerfOp parse_op(const std::string& text) {
  std::string plain = text;
  std::erase_if(plain, [](char c) { return c == '-' || c == '_'; });
  for (const OpRow& row : kOps) {
    if (plain == row.name) return row.op;
  }
  throw SetupError(fmt::format("unknown operation '{}'; allowed: {}", text, fmt::join(perf_op_names(), ", ")));
}

PerfType parse_type(const std::string& text) {
  const auto* const found =
      std::ranges::find(kTypes, text, [](const PerfType& type) { return std::string(type.name); });
  if (found != std::end(kTypes)) return *found;
  throw SetupError(fmt::format("unknown type '{}'; allowed: {}", text, fmt::join(perf_type_names(), ", ")));
}

Reduction parse_reduction(const std::string& text) {
  for (const auto& [name, reduction] : kReductions) {
    if (text == name) return reduction;
  }
  reject("--reduction", text, "sum, min or max");
}

bool is_auto(const std::vector<std::string>& strategies) { return strategies == std::vector<std::string>{kAutoCodec}; }

// Reads the strategies of all lists. A ",stream" stays with the aggregator before it.
std::vector<StrategyId> parse_strategies(const PerfOptions& options) {
  if (options.strategies.empty() || is_auto(options.strategies)) return {};
  return find_strategies(fmt::format("{}", fmt::join(options.strategies, ",")));
}

// Reads the name of a codec or pair. If the library chooses, `there` is a codec with the bound that is asked for.
PerfCodec parse_codec(const std::string& name) {
  if (!gl_begins_auto(name.c_str())) return {find_codec_pair(name)};
  gl_auto asked{};
  if (!gl_parse_auto(name.c_str(), &asked)) {
    throw SetupError(fmt::format("--codec '{}': there is no such codec; allowed: {}", name, GL_AUTO_USAGE));
  }
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  const bool relative = name.find("rel=") != std::string::npos;
  const std::string bits = name.substr(digits);
  const std::string bound = bits.empty() ? std::string(kDefaultCodec) : (relative ? "fixed:rel=" : "fixed:") + bits;
  return {find_codec_pair(bound), name};
}

std::vector<PerfCodec> parse_codecs(const PerfOptions& options, const PerfSettings& plan) {
  const PerfType& type = plan.type;
  std::vector<std::string> names = codec_list(options.codecs);
  const auto served = [&](Serves serves) {
    return encoded(static_cast<ElementType>(type.type), plan.reduction, serves);
  };
  if (names.empty())
    names = served(Serves::kFloat32)
                ? std::vector<std::string>{std::string(kDefaultCodec), std::string(kDefaultLossyCodec)}
                : std::vector<std::string>{std::string(kDefaultCodec)};
  std::vector<PerfCodec> codecs;
  for (const std::string& name : names) {
    codecs.push_back(parse_codec(name));
    const PerfCodec& codec = codecs.back();
    if (!served(codec.there.row().serves) &&
        !(codec.there.row().exact() && (!codec.back || codec.back->row().exact()))) {
      const bool picked = picks(plan.reduction);
      throw SetupError(
          fmt::format("--codec '{}': {} {} as {}: only sums of float32 can be compressed; leave out "
                      "--codec, or use raw",
                      name, picked ? "minima and maxima" : type.name, picked ? "are sent" : "is sent",
                      picked ? "uncompressed values" : "uncompressed data"));
    }
  }
  return codecs;
}

PerfFormat parse_format(const PerfOptions& options) {
  if (options.json && !options.format.empty() && options.format != "json") {
    throw SetupError(fmt::format("--format '{}' and --json exclude each other: use one of them", options.format));
  }
  if (options.json || options.format == "json") return PerfFormat::kJson;
  if (options.format.empty() || options.format == "table") return PerfFormat::kTable;
  if (options.format == "osu") return PerfFormat::kOsu;
  if (options.format == "nccl") return PerfFormat::kNccl;
  reject("--format", options.format, "table, json, osu or nccl");
}

// Reads the options for format, percentiles and background load.
void parse_tail(const PerfOptions& options, PerfSettings& plan) {
  plan.format = parse_format(options);
  plan.percentiles = options.percentiles || !options.background.empty();
  if (plan.percentiles && plan.format == PerfFormat::kNccl) {
    throw SetupError("--format nccl has no columns for --percentiles and --background-load; use table, json or osu");
  }
  const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");
  plan.interface = !options.interface.empty()                   ? options.interface
                   : interface != nullptr && *interface != '\0' ? interface
                                                                : "lo";
  if (options.background.empty()) {
    if (!options.interface.empty()) throw SetupError("--interface is used only with --background-load");
    return;
  }
  const auto aim = parse_real(options.background, kLeastAim, kMostAim);
  if (!aim) reject("--background-load", options.background, "a target for p99/p50 from 1.1 to 10, as in 1.5 or 3");
  plan.background = *aim;
}

// Throws SetupError if options cannot be combined.
void check_together(const PerfSettings& plan) {
  const unsigned parts = std::ranges::max(plan.together);
  if (parts > 1 && plan.ops != std::vector{PerfOp::kAllReduce})
    throw SetupError("--together works only with --op allreduce");
  if (parts > 1 && plan.feedback) throw SetupError("--together cannot be combined with --feedback");
  if (parts > plan.sizes.front() / plan.type.bytes) {
    throw SetupError(
        fmt::format("--together '{}': tensors of {} bytes have fewer elements", parts, plan.sizes.front()));
  }
  if (plan.concurrent > 1 && parts > 1) {
    throw SetupError("--concurrent and --together exclude each other: use one of them");
  }
  if (plan.encoded &&
      (plan.ops != std::vector{PerfOp::kAllReduce} || plan.type.type != GRADLANE_FLOAT32 || picks(plan.reduction) ||
       parts > 1 || plan.concurrent > 1 || plan.feedback || plan.background > 0)) {
    throw SetupError(
        "--encoded works only with sums of float32 by --op allreduce, one at a time, without --feedback and "
        "--background-load");
  }
  if (plan.concurrent > 1 && plan.feedback) throw SetupError("--concurrent cannot be combined with --feedback");
  if (plan.concurrent > 1 && plan.background > 0) {
    throw SetupError("--background-load works only with one operation at a time: leave out --concurrent");
  }
  for (const PerfOp op : plan.ops) {
    if (picks(plan.reduction) && !reduces(perf_kind(op))) {
      throw SetupError(
          fmt::format("--op '{}' with --reduction: this operation reduces nothing; allowed: allreduce, reducescatter",
                      perf_op_name(op)));
    }
    for (const StrategyId& strategy : plan.strategies) {
      if (supports(strategy, perf_kind(op))) continue;
      throw SetupError(fmt::format("--op '{}': strategy {} cannot do that", perf_op_name(op), strategy.name().view()));
    }
  }
  for (const PerfCodec& codec : plan.codecs) {
    for (const StrategyId& strategy : plan.strategies) {
      if (!codec.back || strategy.kind == StrategyId::Kind::kAggregator) continue;
      throw SetupError(
          fmt::format("--codec '{}': only aggregators have a codec for the way back, but --strategy also "
                      "names {}; measure them in separate runs",
                      codec.name(), strategy.name().view()));
    }
  }
}

}  // namespace

std::vector<PerfCodec> perf_codecs(const PerfSettings& plan, PerfOp op) {
  if (reduces(perf_kind(op))) return plan.codecs;
  std::vector<PerfCodec> lossless;
  std::ranges::copy_if(plan.codecs, std::back_inserter(lossless), [](const PerfCodec& each) {
    const CodecRow& row = each.there.row();  // copies do not differ by how sums are rounded
    return row.exact() && !row.rounds_once && !each.back && each.automatic.empty();
  });
  if (!lossless.empty()) return lossless;
  return {{{.there = codec_of(FloatForm::kFp32, select_isa()), .back = {}}}};
}

PerfCandidates perf_candidates(const PerfSettings& plan, PerfOp op, const std::vector<StrategyId>& allowed,
                               unsigned world) {
  const bool chosen = !plan.strategies.empty();
  std::vector<StrategyId> strategies = chosen ? plan.strategies : allowed;
  std::erase_if(strategies, [op](const StrategyId& each) { return !supports(each, perf_kind(op)); });
  // If no strategy is left, operations use the ring, even if the daemon does not let operations name it.
  const StrategyId own = strategies.empty() || allowed.empty() ? StrategyId{} : allowed.front();
  if (strategies.empty()) strategies.push_back(own);
  PerfCandidates found;
  for (const PerfCodec& codec : perf_codecs(plan, op)) {
    const size_t before = found.candidates.size();
    std::string why;
    for (const StrategyId& strategy : strategies) {
      if (!chosen && found.candidates.size() > before) break;  // one strategy is enough
      const std::string fault = codec.automatic.empty() ? strategy_fault(codec, strategy, allowed, world) : "";
      if (fault.empty()) found.candidates.push_back({op, strategy, chosen || strategy != own, codec});
      if (why.empty()) why = fault;
      if (chosen && !fault.empty()) found.skipped.push_back(codec.name() + ": " + fault);
    }
    if (found.candidates.size() > before) continue;
    if (!plan.every_codec) throw SetupError(fmt::format("--codec '{}': {}", codec.name(), why));
    if (!chosen) found.skipped.push_back(codec.name() + ": " + why);
  }
  return found;
}

OpKind perf_kind(PerfOp op) noexcept { return std::ranges::find(kOps, op, &OpRow::op)->kind; }

PerfSettings make_perf_settings(const PerfOptions& options) {
  PerfSettings plan;
  plan.sizes = parse_sizes(options);
  const std::string counts = fmt::format("a whole number from 1 to {}", kMaxIterations);
  const std::string from_zero = fmt::format("a whole number from 0 to {}", kMaxIterations);
  const auto number = [](const char* option, const std::string& text, const char* fallback, uint64_t least,
                         const std::string& allowed) {
    return static_cast<unsigned>(parse_number(option, text.empty() ? fallback : text, least, kMaxIterations, allowed));
  };
  parse_tail(options, plan);
  plan.iterations = number("-n", options.iterations, plan.percentiles ? "200" : "20", 1, counts);
  plan.warmup = number("-w", options.warmup, "5", 0, from_zero);
  for (const std::string& text : separated(options.together)) {
    plan.together.push_back(number("--together", text, "1", 1, counts));
  }
  if (plan.together.empty()) plan.together = {1};
  plan.concurrent =
      static_cast<unsigned>(parse_number("--concurrent", options.concurrent.empty() ? "1" : options.concurrent, 1,
                                         kMaxConcurrent, "a whole number from 1 to 64"));
  for (const std::string& name : separated(options.ops)) plan.ops.push_back(parse_op(name));
  if (plan.ops.empty()) plan.ops = {PerfOp::kAllReduce};
  plan.type = parse_type(options.type.empty() ? "float32" : options.type);
  plan.strategies = parse_strategies(options);
  plan.auto_strategy = is_auto(options.strategies);
  plan.reduction = parse_reduction(options.reduction.empty() ? "sum" : options.reduction);
  plan.codecs = parse_codecs(options, plan);
  plan.every_codec = std::ranges::any_of(options.codecs, [](const std::string& text) { return names_all(text); });
  plan.feedback = options.feedback;
  plan.encoded = options.encoded;
  check_together(plan);

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

const char* perf_op_name(PerfOp op) noexcept { return std::ranges::find(kOps, op, &OpRow::op)->name; }

std::vector<std::string> perf_op_names() {
  std::vector<std::string> names;
  for (const OpRow& row : kOps) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> perf_type_names() {
  std::vector<std::string> names;
  for (const PerfType& type : kTypes) names.emplace_back(type.name);
  return names;
}

size_t perf_count(const PerfSettings& plan, PerfOp op, size_t bytes, unsigned world) noexcept {
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
