// choice_reports.cc - reports of client libraries on the choices of `auto` (control thread)
#include "dataplane/trainer/choice_reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <span>
#include <string_view>

#include "client/gradlane.h"
#include "collectives/strategy/strategy_id.h"
#include "config/values.h"

namespace gradlane {
namespace {

constexpr size_t kMostSaid = 256;  // classes of a rank; further ones are not logged
constexpr double kMiB = 1 << 20;
constexpr Nanos kSaidAgain = 10 * kSecond;
constexpr const char* kKinds[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier",
                                  "reduce",     "gather",         "scatter",    "all_to_all"};
constexpr const char* kTypes[] = {"float32", "float64", "float16", "bfloat16", "int32", "int64", "bytes"};

std::string printable(const char* text, size_t room) {
  std::string result(text, strnlen(text, room));
  std::ranges::replace_if(
      result, [](char c) { return c < ' ' || c > '~'; }, '?');
  return result;
}

double sane(double value) {
  constexpr double kMost = 1e12;
  return value > 0 && value < kMost ? value : 0;
}

std::string strategy_name(uint32_t code) {
  const auto strategy = strategy_of(code);
  return strategy ? std::string(strategy->name().view()) : "";
}

std::string why_of(const PlanFigures& it, uint8_t reason) {
  switch (reason) {
    case GL_REASON_TRYING:
      return "still trying";
    case GL_REASON_EXACT:
      return "exact: no codec that rounds was asked for (auto:2^-B or auto:rel=B allows one)";
    case GL_REASON_NO_CODEC:
      return "exact: no codec keeps this bound with any of the strategies";
    case GL_REASON_SLOWER:
      return fmt::format("exact: {} takes longer", it.rival);
    case GL_REASON_UNLIKELY:
      return "exact: predictions show no codec that is worth a trial";
    case GL_REASON_DIFFER:
      return "exact: the daemons of some ranks offer other codecs or strategies";
    case GL_REASON_FAILED:
      return "exact: ranks could not agree, because an operation failed";
    case GL_REASON_TYPE:
      return fmt::format("exact: codecs are for sums of float32, but this is {}", it.type);
    case GL_REASON_PLAN:
      return "as in the plan";
    case GL_REASON_ROUNDS:
      return "the plan's codec rounds more than requested, or in another way: only its strategy is used";
    case GL_REASON_NO_PLAN:
      return "the plan has no row for it";
    default:
      return "";
  }
}

// Reads a row. Returns false if the row makes no sense.
bool read(const gl_report_row& row, PlanFigures& it) {
  if (row.kind >= std::size(kKinds) || row.type >= std::size(kTypes) || row.size > 40) return false;
  it.operation = kKinds[row.kind];
  it.type = kTypes[row.type];
  it.configured = row.reason != GL_REASON_TYPE;
  if (it.configured) {
    it.from = row.size == GL_LEAST_SIZE ? 0 : uint64_t{1} << row.size;
    it.to = row.size == GL_LEAST_SIZE + GL_SIZES - 1 ? uint64_t{1} << 50 : uint64_t{2} << row.size;
  }
  it.asked = printable(row.asked, sizeof(row.asked));
  it.codec = printable(row.codec, sizeof(row.codec));
  it.strategy = strategy_name(row.strategy);
  it.exact = row.exact != 0;
  it.frozen = row.frozen != 0;
  it.settled = row.reason != GL_REASON_TRYING;
  it.operations = row.operations;
  it.bytes = row.bytes;
  it.sent_bytes = row.sent_bytes;
  it.predicted = sane(row.predicted);
  it.measured = sane(row.measured);
  it.baseline = sane(row.baseline);
  it.rival = printable(row.rival, sizeof(row.rival));
  if (const std::string by = strategy_name(row.rival_strategy); !by.empty() && !it.rival.empty())
    it.rival += " by " + by;
  it.rival_measured = sane(row.rival_measured);
  it.changes = row.changes;
  if (it.measured > 0 && it.baseline > 0) {
    it.saved_ms = (it.baseline - it.measured) * static_cast<double>(std::min(it.bytes, uint64_t{1} << 60)) * 1e-6;
  }
  it.why = why_of(it, row.reason);
  const bool floating = row.type != GRADLANE_BYTES && row.type != GRADLANE_INT32 && row.type != GRADLANE_INT64;
  it.warns = row.reason == GL_REASON_NO_CODEC || row.reason == GL_REASON_DIFFER || row.reason == GL_REASON_FAILED ||
             (row.reason == GL_REASON_TYPE && floating);
  return true;
}

std::string class_of(const PlanFigures& it) {
  if (!it.configured) return fmt::format("{} of {}, codec {}", it.operation, it.type, it.asked);
  const std::string to = it.to == uint64_t{1} << 50 ? "more" : size_text(it.to);
  return fmt::format("{} of {}, {} to {}, codec {}", it.operation, it.type, size_text(it.from), to, it.asked);
}

}  // namespace

std::vector<PlanFigures> plan_figures(const std::vector<SessionReports>& reports) {
  std::vector<PlanFigures> all;
  for (const SessionReports& each : reports) {
    for (const gl_report_row& row : each.rows) {
      PlanFigures it;
      it.rank = each.rank;
      if (read(row, it)) all.push_back(std::move(it));
    }
  }
  return all;
}

std::string plan_line(const PlanFigures& it) {
  std::string text = class_of(it) + ": ";
  if (!it.configured) return text + it.why;
  text += it.codec.empty() ? "uncompressed" : it.codec;
  if (!it.strategy.empty()) text += " by " + it.strategy;
  if (it.measured > 0) text += fmt::format(", {:.3g} ns per byte", it.measured);
  if (it.predicted > 0) text += fmt::format(" (predicted {:.3g})", it.predicted);
  if (it.baseline > 0 && it.baseline != it.measured) text += fmt::format("; raw takes {:.3g}", it.baseline);
  if (it.rival_measured > 0) text += fmt::format(", {} {:.3g}", it.rival, it.rival_measured);
  if (const double saved = (it.baseline - it.measured) * kMiB * 1e-6; it.measured > 0 && saved > 0) {
    text += fmt::format("; saves {:.3g} ms per MiB", saved);
  }
  if (it.sent_bytes > 0) {
    text += fmt::format("; {:.4g} MB of tensors so far, {:.4g} MB sent", 1e-6 * static_cast<double>(it.bytes),
                        1e-6 * static_cast<double>(it.sent_bytes));
  }
  return it.why.empty() ? text : text + "; " + it.why;
}

// Returns whether a class has to be logged: it is new, or its codec or strategy has changed. New measurements alone do
// not count.
bool ReportWatch::is_new(const PlanFigures& it, size_t turn, Nanos now) {
  const std::string of = fmt::format("{} {} {}", it.operation, it.type, it.from);
  const std::string chosen = it.codec + " " + it.strategy + " " + (it.exact ? it.why : "");
  const auto found = std::ranges::find_if(
      said_, [&](const Said& each) { return each.rank == it.rank && each.turn == turn && each.of == of; });
  if (found == said_.end()) {
    const auto known = std::ranges::count(said_, it.rank, &Said::rank);
    if (known < static_cast<ptrdiff_t>(kMostSaid)) said_.push_back({it.rank, of, turn, chosen, now});
    return known < static_cast<ptrdiff_t>(kMostSaid);
  }
  if (found->chosen == chosen || now < found->at + kSaidAgain) return false;
  found->chosen = chosen;
  found->at = now;
  return true;
}

std::vector<ReportWatch::Line> ReportWatch::look(const std::vector<PlanFigures>& all, Nanos now) {
  std::erase_if(
      said_, [&all](const Said& each) { return std::ranges::find(all, each.rank, &PlanFigures::rank) == all.end(); });
  std::vector<Line> lines;
  for (size_t i = 0; i < all.size(); ++i) {
    const PlanFigures& it = all[i];
    const auto alike = [&it](const PlanFigures& other) {
      return other.rank == it.rank && other.operation == it.operation && other.type == it.type && other.from == it.from;
    };
    const auto before = std::span(all).first(i);
    const auto turn = static_cast<size_t>(std::ranges::count_if(before, alike));
    if (!it.settled || !is_new(it, turn, now)) continue;
    lines.push_back(
        {it.warns, fmt::format("choices of rank {}", it.rank), fmt::format("rank {}: {}", it.rank, plan_line(it))});
  }
  return lines;
}

}  // namespace gradlane
