// plan.cc - `gradlane plan`: a prediction of what compressing would save in a training, before anything is set up
#include "tools/plan/plan.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tools/calibrate/calibrate.h"
#include "tools/calibrate/default_file.h"
#include "tools/plan/advice.h"
#include "tools/plan/paper.h"
#include "tools/plan/rows.h"
#include "tools/plan/what_if.h"
#include "tools/plan/widths.h"

namespace gradlane {
namespace {

std::string ms_text(double seconds) {
  const double ms = seconds * 1e3;
  return ms < 99.95 ? fmt::format("{:.1f}", ms) : fmt::format("{:.0f}", ms);
}

// Prints a text in lines of at most 120 columns. All but the first line begin with `indent`.
void print_wrapped(std::string text, const std::string& indent = "") {
  constexpr size_t kColumns = 120;
  while (text.size() > kColumns) {
    const size_t blank = text.rfind(' ', kColumns);
    if (blank == text.npos || blank <= indent.size()) break;
    fmt::print("{}\n", text.substr(0, blank));
    text = indent + text.substr(blank + 1);
  }
  fmt::print("{}\n", text);
}

// Prints the decision, and each further clause as an item of a list.
void print_advice(const PlanSetting& setting, const PlanRows& rows) {
  const std::vector<std::string> clauses = advice_clauses(setting, rows);
  for (size_t i = 0; i < clauses.size(); ++i) print_wrapped((i == 0 ? "" : "- ") + clauses[i], i == 0 ? "" : "  ");
}

void print_head(const PlanSetting& setting) {
  const StepCompute compute = setting.compute();
  fmt::print("{}: {:.1f} M parameters, {:.0f} MB of gradients in {} buckets\n", setting.model.name,
             setting.model.elements() / 1e6, setting.model.elements() * 4e-6, setting.buckets.size());
  fmt::print("{} node{}, {:g} Gb/s, batch {}: forward {} ms, backward {} ms, {}\n", setting.nodes,
             setting.nodes == 1 ? "" : "s", setting.gbps, setting.batch, ms_text(compute.forward),
             ms_text(compute.backward), setting.compute_from);
  const Calibration& calibration = setting.calibration;
  const std::string assumed = assumed_text(setting);
  if (!setting.calibrated) {
    const std::string which =
        setting.rings.empty() ? "usual figures" : "figures of another host, with " + cores_text(setting.known_cores);
    fmt::print("port {}, {}: {}\n", calibration.port, which,
               setting.ignored.empty() ? "there is no calibration (gradlane plan --calibrate makes one)"
                                       : "no calibration can be used");
    if (!setting.ignored.empty()) print_wrapped(setting.ignored);
  } else if (calibration.links.empty()) {
    fmt::print("port {}, usual figures; codecs calibrated {}; links: {}\n", calibration.port, calibration.made,
               assumed.empty() ? "as given" : assumed);
  } else {
    fmt::print("port {}, calibrated {}\n", calibration.port, calibration.made);
    if (setting.at_least())
      fmt::print("links may be faster: the cores were too slow to measure them; set their rate with --gbps\n");
  }
  fmt::print("\n");
}

// Returns a cell: the speed-up to the accuracy of fp32, or how many trainings reached it.
std::string accuracy_text(const PlanRow& row) {
  if (const auto speedup = row.to_accuracy()) return fmt::format("{:.2f}x", *speedup);
  return row.effect ? fmt::format("{} of {}", row.effect->reached, row.effect->seeds) : "-";
}

// Returns whether a codec's row was predicted from the costs of packets and codecs.
bool from_parts(const PlanRow& row) { return row.kind == RowKind::kCodec && !row.measured; }

void print_rows(const PlanSetting& setting, const PlanRows& rows) {
  fmt::print("{:<16} {:<11} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>11}  {}\n", "codec", "ways", "MB sent", "exchange",
             "hidden", "exposed", "step", "speed-up", "to accuracy", "limit");
  for (const PlanRow& row : rows.rows) {
    const StepTime& time = row.plan.time;
    const double sent = row.plan.sum.sent_bytes;
    fmt::print("{:<16} {:<11} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7.2f}x {:>11}  {}{}\n", row.codec, row.ways,
               sent > 0 ? fmt::format("{:.1f}", sent * 1e-6) : "-", ms_text(time.exchange), ms_text(time.hidden),
               ms_text(time.exposed), ms_text(time.step), row.speedup, accuracy_text(row),
               row.limit.empty() ? "-" : row.limit,
               &row == rows.baseline                   ? "; baseline"
               : rows.raw->measured && from_parts(row) ? "; from parts"
               : row.moved                             ? "; moved"
                                                       : "");
  }
  fmt::print("\nA step of one node alone: {} ms; if exchanges took no time: {} ms.\n", ms_text(rows.compute),
             ms_text(rows.without));
  if (!rows.enough) {
    fmt::print("No compression ratio brings steps within {:.0f} % of that.\n", kLinearSlack * 100);
  } else if (*rows.enough <= 1) {
    fmt::print("Without compression, steps are within {:.0f} % of that.\n", kLinearSlack * 100);
  } else {
    fmt::print("To be within {:.0f} % of that, bytes must shrink by a factor of {:.1f}, in no time.\n",
               kLinearSlack * 100, *rows.enough);
  }
  if (setting.effects.empty()) {
    fmt::print("What codecs do to the accuracy of such a model was not measured{}.\n",
               setting.kind.empty() ? "; --kind says what kind of model it is" : "");
  } else {
    fmt::print(
        "To accuracy: speed-up / epochs that the codec needs compared with fp32, in trainings of a small {}\n"
        "(docs/accuracy.md). 2 of 5: so many trainings reached the accuracy of fp32. -: none were made with this "
        "codec.\n"
        "Large models were not trained.\n",
        setting.kind);
  }
  if (const std::string text = errors_text(setting, rows); !text.empty()) print_wrapped(text);
  if (const std::string note = compute_note(setting); !note.empty()) fmt::print("Predicted with {}.\n", note);
  print_advice(setting, rows);
}

nlohmann::json or_null(const std::string& text) { return text.empty() ? nlohmann::json() : nlohmann::json(text); }

nlohmann::json effect_json(const PlanRow& row) {
  if (!row.effect) return {};
  return {{"epochs", row.effect->epochs},
          {"difference", row.effect->difference},
          {"reached", row.effect->reached},
          {"seeds", row.effect->seeds}};
}

nlohmann::json row_json(const PlanRow& row) {
  const AllReduceTime& sum = row.plan.sum;
  const StepTime& time = row.plan.time;
  return {{"codec", row.codec},
          {"ways", row.ways},
          {"exchange_ms", time.exchange * 1e3},
          {"hidden_ms", time.hidden * 1e3},
          {"exposed_ms", time.exposed * 1e3},
          {"step_ms", time.step * 1e3},
          {"speedup", row.speedup},
          {"to_accuracy", row.to_accuracy() ? nlohmann::json(*row.to_accuracy()) : nlohmann::json()},
          {"effect", effect_json(row)},
          {"measured", row.measured},
          {"moved", row.moved},
          {"limit", or_null(row.limit)},
          {"busy_ms", row.plan.busy * 1e3},
          {"sent_bytes", sum.sent_bytes},
          {"sent_packets", sum.sent_packets},
          {"link_ms", sum.link * 1e3},
          {"codec_ms", sum.codec * 1e3},
          {"packets_ms", sum.packets * 1e3},
          {"memory_ms", sum.memory * 1e3},
          {"latency_ms", sum.latency * 1e3}};
}

std::string to_json(const PlanSetting& setting, const PlanRows& rows) {
  nlohmann::json result = {{"model", setting.model.name},
                           {"elements", setting.model.elements()},
                           {"nodes", setting.nodes},
                           {"gbps", setting.gbps},
                           {"gbps_at_least", setting.at_least()},
                           {"batch", setting.batch},
                           {"port", setting.calibration.port},
                           {"calibrated", setting.calibrated},
                           {"cores", setting.calibration.cores},
                           {"compute_ms", rows.compute * 1e3},
                           {"compute_from", setting.compute_from},
                           {"baseline", rows.baseline->codec},
                           {"advice", advice(setting, rows)},
                           {"rows", nlohmann::json::array()}};
  result["calibration_ignored"] = or_null(setting.ignored);
  result["kind"] = or_null(setting.kind);
  result["expected_error"] = nullptr;
  if (const auto errors = errors_of(setting, rows)) {
    result["expected_error"] = {{"median", errors->median}, {"most", errors->most}, {"steps", errors->steps}};
  }
  result["ratio_enough"] = rows.enough ? nlohmann::json(*rows.enough) : nlohmann::json();
  constexpr const char* kPays[] = {"never", "below", "always"};
  const bool below = rows.rates.kind == PlanRates::Kind::kBelow;
  result["pays"] = kPays[static_cast<size_t>(rows.rates.kind)];
  result["pays_codec"] = rows.named;
  result["nothing_from_gbps"] = below ? nlohmann::json(rows.rates.rate * 8e-9) : nlohmann::json();
  for (const PlanRow& row : rows.rows) result["rows"].push_back(row_json(row));
  for (const ModelLayer& each : setting.model.layers) {
    result["layers"].push_back({{"name", each.name}, {"elements", each.elements}});
  }
  return result.dump(1);
}

// Throws SetupError if options of plans and options of calibrations are mixed.
void check_kind(const PlanOptions& options) {
  const std::pair<const char*, bool> of_plans[] = {{"--model", !options.model.empty()},
                                                   {"--gbps", !options.gbps.empty()},
                                                   {"--batch", !options.batch.empty()},
                                                   {"--compute-ms", !options.compute_ms.empty()},
                                                   {"--codecs", !options.codecs.empty()},
                                                   {"--cores", !options.cores.empty()},
                                                   {"--kind", !options.kind.empty()},
                                                   {"--strategy", !options.strategies.empty()},
                                                   {"--calibration", !options.calibration.empty()},
                                                   {"--mtu", !options.mtu.empty()},
                                                   {"--latency-us", !options.latency_us.empty()},
                                                   {"--what-if", !options.what_if.empty()},
                                                   {"--widths", !options.widths.empty()},
                                                   {"--paper", options.paper}};
  const std::pair<const char*, bool> of_calibrations[] = {
      {"-o", !options.output.empty()},   {"--socket", !options.socket.empty()}, {"--admin", !options.admin.empty()},
      {"--rank", !options.rank.empty()}, {"--python", !options.python.empty()}, {"--alone", options.alone},
      {"--quick", options.quick}};
  for (const auto& [name, given] : of_plans) {
    if (given && options.calibrate)
      throw SetupError(fmt::format("{} cannot be combined with --calibrate: leave one of them out", name));
  }
  for (const auto& [name, given] : of_calibrations) {
    if (given && !options.calibrate) throw SetupError(fmt::format("{} is used only with --calibrate", name));
  }
}

}  // namespace

int run_plan(PlanOptions options) {
  check_kind(options);
  if (options.calibrate) {
    std::optional<PlanPort> port;
    std::optional<unsigned> lanes;
    if (!options.port.empty()) port = plan_port_of(options.port);
    if (!options.lanes.empty()) lanes = plan_lanes_of(options.lanes);
    return run_calibrate({options.output, options.socket, options.admin, options.rank, port, lanes, options.alone,
                          options.quick, options.json, options.nodes, options.python});
  }
  // the page with the results of --paper must not depend on the host
  if (!options.paper) options.places = calibration_places();
  if (!options.widths.empty() && (options.paper || !options.what_if.empty())) {
    throw SetupError("--widths analyses recordings: leave out --paper and --what-if");
  }
  if (options.paper && !options.what_if.empty()) throw SetupError("--paper has a fixed grid: leave out --what-if");
  if (!options.widths.empty()) {
    run_widths(options);
  } else if (options.paper) {
    run_paper(options);
  } else if (!options.what_if.empty()) {
    run_what_if(options);
  } else {
    const PlanSetting setting = make_plan_setting(options);
    const PlanRows rows = plan_rows(setting);
    if (options.json) {
      fmt::print("{}\n", to_json(setting, rows));
    } else {
      print_head(setting);
      if (setting.nodes > 1) print_rows(setting, rows);
      if (setting.nodes == 1) print_advice(setting, rows);
    }
  }
  std::fflush(stdout);
  return 0;
}

}  // namespace gradlane
