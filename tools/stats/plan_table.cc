// plan_table.cc - choices of codec and strategy for operations, as a table and as a plan file (no I/O)
#include "tools/stats/plan_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "config/choices.h"
#include "config/values.h"

namespace gradlane {
namespace {

using nlohmann::json;

constexpr double kOpenEnd = 0x1p50;

std::string bytes_text(const json& value) {
  const double bytes = number(value);
  return bytes >= kOpenEnd ? "more" : size_text(static_cast<uint64_t>(std::max(bytes, 0.0)));
}

std::string sizes_text(const json& it) {
  if (number(at(it, "to")) <= 0) return "any";
  return bytes_text(at(it, "from")) + "-" + bytes_text(at(it, "to"));
}

std::string figure(const json& value) { return number(value) > 0 ? digits(number(value)) : "-"; }

std::string megabytes(const json& value) { return number(value) > 0 ? digits(1e-6 * number(value)) : "-"; }

std::string way_text(const json& it) {
  std::string way = text(at(it, "codec"));
  if (way.empty()) way = "uncompressed";
  const std::string strategy = text(at(it, "strategy"));
  return strategy.empty() ? way : way + " by " + strategy;
}

struct Chosen {
  PlanChoice choice;
  double bytes = 0;
};

// Returns whether the strategy and the codec are known. Trainers write these texts, so they may be anything.
bool are_known(const json& it) {
  try {
    (void)find_strategy(text(at(it, "strategy")));
    (void)find_codec(text(at(it, "codec")));
    return true;
  } catch (const SetupError&) {
    return false;
  }
}

bool may_be_kept(const json& it) {
  return at(it, "settled") == true && at(it, "operation") == "all_reduce" && at(it, "type") == "float32" &&
         number(at(it, "to")) > 0 && !text(at(it, "codec")).empty() && !text(at(it, "strategy")).empty() &&
         are_known(it);
}

Chosen chosen_of(const json& it) {
  Chosen chosen;
  chosen.choice.from = static_cast<uint64_t>(number(at(it, "from")));
  chosen.choice.to = static_cast<uint64_t>(number(at(it, "to")));
  chosen.choice.strategy = find_strategy(text(at(it, "strategy")));
  chosen.choice.codec = find_codec(text(at(it, "codec")));
  chosen.bytes = number(at(it, "bytes"));
  return chosen;
}

// Sorts by operation, type, request and size. The rows of several trainers for the same class are adjacent.
std::vector<json> sorted(const json& plan) {
  std::vector<json> rows(plan.begin(), plan.end());
  const auto key = [](const json& it) {
    return std::tuple(text(at(it, "operation")), text(at(it, "type")), text(at(it, "asked")), number(at(it, "from")),
                      number(at(it, "rank")));
  };
  std::ranges::stable_sort(rows, {}, key);
  return rows;
}

bool alike(const PlanChoice& a, const PlanChoice& b) {
  return a.strategy == b.strategy && a.codec.name() == b.codec.name();
}

}  // namespace

bool all_rings_whole(const json& document) {
  const json& ranks = at(document, "ranks");
  return !ranks.is_array() ||
         std::ranges::all_of(ranks, [](const json& it) { return text(at(it, "ring")) == "whole"; });
}

Lines plan_lines(const json& document) {
  const json& all = at(document, "plan");
  if (!all.is_array() || all.empty()) {
    Lines lines = {
        "the library has not chosen anything yet: only operations with codec auto or strategy auto leave the choice to "
        "it"};
    if (!all_rings_whole(document)) lines.emplace_back("the ring is not ready: run this again when it is");
    return lines;
  }
  const std::vector<json> plan = sorted(all);
  std::vector<std::vector<std::string>> rows = {{"rank", "operation", "type", "tensor bytes", "asked", "chosen",
                                                 "predicted ns/B", "measured ns/B", "raw ns/B", "saved ms",
                                                 "operations", "MB", "MB sent"}};
  bool gaps = false;
  for (const json& it : plan) {
    gaps = gaps || number(at(it, "measured")) <= 0;
    rows.push_back({text(at(it, "rank")), text(at(it, "operation")), text(at(it, "type")), sizes_text(it),
                    text(at(it, "asked")), way_text(it), figure(at(it, "predicted")), figure(at(it, "measured")),
                    figure(at(it, "baseline")), digits(number(at(it, "saved_ms"))),
                    count_text(number(at(it, "operations"))), megabytes(at(it, "bytes")),
                    megabytes(at(it, "sent_bytes"))});
  }
  const Lines formatted = table(rows);
  Lines lines{formatted.front()};
  for (size_t i = 0; i < plan.size(); ++i) {
    lines.push_back(formatted[i + 1]);
    if (const std::string why = text(at(plan[i], "why")); !why.empty()) lines.push_back("  " + why);
  }
  lines.emplace_back("ns/B: per byte of the tensor; raw: uncompressed, by the first strategy");
  lines.emplace_back("saved: compared with raw, by this rank so far; MB sent: by this rank");
  if (gaps)
    lines.emplace_back(
        "-: not measured: trials are running, or there are none (a plan decides, or there is one choice)");
  return lines;
}

std::string frozen_plan(const json& document) {
  std::vector<Chosen> all;
  for (const json& it : at(document, "plan")) {
    if (!may_be_kept(it)) continue;
    const Chosen chosen = chosen_of(it);
    const auto same = std::ranges::find(all, chosen.choice.from, [](const Chosen& each) { return each.choice.from; });
    if (same == all.end()) {
      all.push_back(chosen);
    } else if (chosen.bytes > same->bytes) {
      *same = chosen;
    }
  }
  if (all.empty())
    throw SetupError("nothing is settled yet: the library has had no sums of float32 to choose for, or too few");
  std::ranges::sort(all, {}, [](const Chosen& each) { return each.choice.from; });
  std::vector<PlanChoice> plan;
  for (const Chosen& each : all) {
    const bool joins = !plan.empty() && plan.back().to == each.choice.from && alike(plan.back(), each.choice);
    if (joins) {
      plan.back().to = each.choice.to;
    } else {
      plan.push_back(each.choice);
    }
  }
  return plan_text(plan);
}

}  // namespace gradlane
