// paper.cc - `gradlane plan --paper`: the set-ups of MLSys'22 by that paper's own model
#include "tools/plan/paper.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "collectives/cost/mlsys.h"

namespace gradlane {
namespace {

constexpr double kRates[] = {1, 2, 4, 6, 8, 10, 15, 20, 30};

struct Count {
  size_t gain = 0;
  size_t unclear = 0;
  size_t all = 0;

  void add(MlsysVerdict verdict) {
    ++all;
    gain += verdict == MlsysVerdict::kGains ? 1 : 0;
    unclear += verdict == MlsysVerdict::kUnclear ? 1 : 0;
  }
  [[nodiscard]] std::string text() const { return fmt::format("{} + {} of {}", gain, unclear, all); }
};

// Returns the column of the table of rates.
size_t column_of(const MlsysSetup& setup) {
  if (setup.published) return 0;
  return setup.model == "resnet101" && setup.batch == 64 ? 1 : 2;
}

void print_tables() {
  fmt::print("{:<46} {:>9} {:>13} {:>6}\n", "lambda 1.04 to 1.1, batch 64, 10 Gb/s", "published", "model", "error");
  for (const MlsysNumber& each : mlsys_published()) {
    fmt::print("{:<46} {:>9} {:>13} {:>5.0f}%{}\n", each.what, fmt::format("{:g} {}", each.published, each.unit),
               fmt::format("{:.3g} to {:.3g}", each.least, each.most), 100 * each.error(),
               each.error() <= kMlsysTolerance ? "" : " missed");
  }
  fmt::print(
      "\nSet-ups that gain more than {0:.0f} % + those within {0:.0f} %, of all. Constants were published for "
      "ResNet-50\n"
      "with a batch of 64; times of the others are scaled from these.\n\n{1:>4} | {2:>15} | {3:>15} | {4:>20}\n",
      100 * kMlsysTolerance, "Gb/s", "ResNet-50, 64", "ResNet-101, 64", "batch 16, 32; BERT");
  for (const double gbps : kRates) {
    std::array<Count, 3> counts;
    for (const MlsysSetup& each : mlsys_grid(gbps * 1e9 / 8)) counts.at(column_of(each)).add(each.verdict());
    fmt::print("{:>4} | {:>15} | {:>15} | {:>20}\n", gbps, counts[0].text(), counts[1].text(), counts[2].text());
  }
}

const char* verdict_name(MlsysVerdict verdict) {
  switch (verdict) {
    case MlsysVerdict::kGains:
      return "gains";
    case MlsysVerdict::kUnclear:
      return "unclear";
    case MlsysVerdict::kLoses:
      return "loses";
  }
  return "";
}

nlohmann::json to_json() {
  nlohmann::json numbers = nlohmann::json::array();
  for (const MlsysNumber& each : mlsys_published()) {
    numbers.push_back({{"what", each.what},
                       {"unit", each.unit},
                       {"published", each.published},
                       {"least", each.least},
                       {"most", each.most},
                       {"error", each.error()}});
  }
  nlohmann::json setups = nlohmann::json::array();
  for (const double gbps : kRates) {
    for (const MlsysSetup& each : mlsys_grid(gbps * 1e9 / 8)) {
      setups.push_back({{"gbps", gbps},
                        {"model", each.model},
                        {"workers", each.workers},
                        {"batch", each.batch},
                        {"codec", each.codec},
                        {"published", each.published},
                        {"backward_ms", each.backward * 1e3},
                        {"sync_ms", {each.sync_least * 1e3, each.sync_most * 1e3}},
                        {"compressed_ms", each.compressed * 1e3},
                        {"verdict", verdict_name(each.verdict())}});
    }
  }
  return {{"tolerance", kMlsysTolerance}, {"numbers", numbers}, {"setups", setups}};
}

}  // namespace

void run_paper(const PlanOptions& options) {
  const std::pair<const char*, bool> ignored[] = {{"--model", !options.model.empty()},
                                                  {"--nodes", !options.nodes.empty()},
                                                  {"--gbps", !options.gbps.empty()},
                                                  {"--batch", !options.batch.empty()},
                                                  {"--compute-ms", !options.compute_ms.empty()},
                                                  {"--codecs", !options.codecs.empty()},
                                                  {"--strategy", !options.strategies.empty()},
                                                  {"--calibration", !options.calibration.empty()},
                                                  {"--port", !options.port.empty()},
                                                  {"--lanes", !options.lanes.empty()},
                                                  {"--cores", !options.cores.empty()},
                                                  {"--kind", !options.kind.empty()},
                                                  {"--mtu", !options.mtu.empty()},
                                                  {"--latency-us", !options.latency_us.empty()}};
  for (const auto& [name, given] : ignored) {
    if (given) throw SetupError(fmt::format("--paper has set-ups and constants of its own: leave out {}", name));
  }
  if (options.json) {
    fmt::print("{}\n", to_json().dump());
  } else {
    print_tables();
  }
}

}  // namespace gradlane
