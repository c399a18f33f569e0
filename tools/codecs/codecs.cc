// codecs.cc - `gradlane codecs`: a list of all codecs, their promises, and their effect on data on this machine
#include "tools/codecs/codecs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "compress/codec.h"
#include "tools/bench/codec_list.h"
#include "tools/codecs/facts.h"
#include "tools/codecs/page.h"

namespace gradlane {
namespace {

std::vector<std::string> names_of(const CodecsOptions& options) {
  return options.codecs.empty() ? all_codecs() : codec_list(options.codecs);
}

std::vector<Samples> data_of(const CodecsOptions& options) {
  if (options.no_measure || !options.write_docs.empty()) return {};
  return make_samples(options.data.empty() ? std::vector<std::string>{"gauss-0.01"} : options.data);
}

std::vector<CodecFact> facts_of(const CodecsOptions& options, std::span<const Samples> data) {
  std::vector<CodecFact> facts;
  for (const std::string& name : names_of(options)) {
    CodecFact& fact = facts.emplace_back(CodecFact{find_codec(name), {}});
    for (const Samples& set : data) fact.figures.push_back(codec_figures(fact.codec, set, !options.measure));
  }
  return facts;
}

// Returns the value as text; "-" if the codec has no such operation.
std::string share_text(double value) { return value > 0 ? fmt::format("{:.2f}", value) : "-"; }

std::string ratio_text(double ratio) {
  return ratio < 99.5 ? fmt::format("{:.3g}", ratio) : fmt::format("{:.0f}", ratio);
}

void print_figures(std::span<const CodecFact> facts, std::span<const Samples> data, size_t width) {
  for (size_t set = 0; set < data.size(); ++set) {
    fmt::print("\n{}: ratio, and speed compared with memcpy of packets\n{:<{}} {:>6} {:>5} {:>5} {:>5} {:>5}\n",
               data[set].name(), "codec", width, "ratio", "enc", "dec", "merge", "look");
    for (const CodecFact& fact : facts) {
      const CodecFigures& each = fact.figures[set];
      fmt::print("{:<{}} {:>6} {:>5} {:>5} {:>5} {:>5}\n", fact.codec.name(), width, ratio_text(each.ratio),
                 share_text(each.encode), share_text(each.decode), share_text(each.merge), share_text(each.scan));
    }
  }
}

void print_tables(std::span<const CodecFact> facts, std::span<const Samples> data) {
  size_t usage = 0;
  size_t name = 0;
  size_t bound = std::string_view("error").size();
  for (const CodecFact& fact : facts) {
    usage = std::max(usage, std::string_view(fact.codec.row().usage).size());
    name = std::max(name, fact.codec.name().size());
    bound = std::max(bound, bound_text(fact.codec).size());
  }
  fmt::print("{:<{}} {:<{}} {:<{}} {:>6} {:>6} {:>7}  {}\n", "codec", usage, "example", name, "error", bound, "states",
             "ways", "same", "what it promises");
  for (const CodecFact& fact : facts) {
    const CodecRow& row = fact.codec.row();
    fmt::print("{:<{}} {:<{}} {:<{}} {:>6} {:>6} {:>7}  {}\n", row.usage, usage, fact.codec.name(), name,
               bound_text(fact.codec), bound, fact.codec.states(), ways_name(row),
               same_bytes_name(same_bytes(fact.codec)), row.promise);
  }
  print_figures(facts, data, name);
  fmt::print("\nerror: of one contribution of the example; L: the largest magnitude of all (of the chunk)\n");
  for (const CodecFact& fact : facts) {
    if (*fact.codec.row().source != 0)
      fmt::print("{:<{}} {}\n", fact.codec.row().usage, usage, fact.codec.row().source);
  }
  fmt::print("Kernels in use: {} (set GRADLANE_ISA to scalar, avx2 or avx512 to choose)\n", isa_name(select_isa()));
}

std::string to_json(std::span<const CodecFact> facts, std::span<const Samples> data) {
  nlohmann::json result = {{"isa", isa_name(select_isa())}, {"codecs", nlohmann::json::array()}};
  for (const CodecFact& fact : facts) {
    const CodecRow& row = fact.codec.row();
    const CodecError error = fact.codec.error();
    nlohmann::json figures = nlohmann::json::array();
    for (size_t set = 0; set < fact.figures.size(); ++set) {
      const CodecFigures& each = fact.figures[set];
      figures.push_back({{"data", data[set].name()},
                         {"ratio", each.ratio},
                         {"encode", each.encode},
                         {"decode", each.decode},
                         {"merge", each.merge},
                         {"look", each.scan}});
    }
    result["codecs"].push_back({{"codec", fact.codec.name()},
                                {"id", static_cast<int>(row.id)},
                                {"word", row.word},
                                {"usage", row.usage},
                                {"promise", row.promise},
                                {"source", row.source},
                                {"bounded", error.bounded},
                                {"relative", error.relative},
                                {"absolute", error.absolute},
                                {"of_largest", error.of_largest},
                                {"states", fact.codec.states()},
                                {"passes", row.passes},
                                {"adds", row.is_additive},
                                {"ways", ways_name(row)},
                                {"exact_sums", fact.codec.exact_sums()},
                                {"same_bytes", same_bytes_name(same_bytes(fact.codec))},
                                {"figures", std::move(figures)}});
  }
  return result.dump(1);
}

}  // namespace

void run_codecs(const CodecsOptions& options) {
  if (options.no_measure && (options.measure || !options.data.empty())) {
    throw SetupError("--no-measure excludes --measure and --data");
  }
  if (!options.write_docs.empty() && !options.codecs.empty())
    throw SetupError("--write-docs excludes --codec, because it writes all codecs");
  const std::vector<Samples> data = data_of(options);
  const std::vector<CodecFact> facts = facts_of(options, data);
  if (!options.write_docs.empty()) {
    write_page(options.write_docs, page_table(facts));
  } else if (options.json) {
    fmt::print("{}\n", to_json(facts, data));
  } else {
    print_tables(facts, data);
  }
  std::fflush(stdout);
}

}  // namespace gradlane
