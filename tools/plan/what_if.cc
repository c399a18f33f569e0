// what_if.cc - `gradlane plan --what-if`: the fastest codec at each point of a grid, and what it saves
#include "tools/plan/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tools/plan/advice.h"
#include "tools/plan/rows.h"

namespace gradlane {
namespace {

struct WhatIfStep {
  std::string codec;
  double seconds;
};

// One point of the grid.
struct Cell {
  double nodes;
  double gbps;
  double batch;
  double compute;
  double alone = 0;               // s of a step on one node
  double baseline = 0;            // s of a step without compression: baseline_row()
  std::vector<WhatIfStep> steps;  // raw first, then bf16 of rivals, then codecs
  std::string raw_limit;

  [[nodiscard]] std::span<const WhatIfStep> codecs() const { return std::span(steps).subspan(1); }
  // Returns the time that a codec must beat: that of the fastest exchange without compression.
  [[nodiscard]] double uncompressed() const { return std::min(baseline, steps.front().seconds); }
  [[nodiscard]] bool gains(const WhatIfStep& codec) const { return uncompressed() >= codec.seconds * (1 + kWorthIt); }
  [[nodiscard]] bool gains() const {
    return std::ranges::any_of(codecs(), [this](const WhatIfStep& each) { return gains(each); });
  }
  // Returns the first codec that gains and is as fast as the fastest. If none gains, returns the fastest of raw and all
  // codecs.
  [[nodiscard]] const WhatIfStep& winner() const {
    const WhatIfStep& fastest = *std::ranges::min_element(steps, {}, &WhatIfStep::seconds);
    const auto found = std::ranges::find_if(codecs(), [&](const WhatIfStep& each) {
      return gains(each) && each.seconds <= fastest.seconds * (1 + kAsFast);
    });
    return found == codecs().end() ? fastest : *found;
  }
  [[nodiscard]] double speedup() const { return baseline / winner().seconds; }
};

PlanSetting setting_of(PlanSetting setting, const Cell& cell) {
  setting = with_gbps(std::move(setting), cell.gbps);
  setting.nodes = static_cast<unsigned>(cell.nodes);
  setting.batch = static_cast<unsigned>(cell.batch);
  setting.sample.forward /= cell.compute;
  setting.sample.backward /= cell.compute;
  return setting;
}

Cell predict_cell(const PlanSetting& base, Cell cell) {
  const PlanSetting setting = setting_of(base, cell);
  cell.alone = setting.compute().seconds();
  cell.baseline = baseline_row(setting).plan.time.step;
  const PlanRow raw = codec_row(setting, "raw");
  cell.steps.push_back({"raw", raw.plan.time.step});
  cell.raw_limit = raw.limit;
  for (const PlanRow& row : rival_bf16_rows(setting)) cell.steps.push_back({row.codec, row.plan.time.step});
  for (const std::string& name : setting.codecs) {
    const double step = codec_row(setting, name).plan.time.step;
    if (std::isfinite(step)) cell.steps.push_back({name, step});
  }
  return cell;
}

std::vector<Cell> cells_of(const PlanSetting& setting, const WhatIf& grid) {
  std::vector<Cell> cells;
  for (const double compute : grid.compute) {
    for (const double batch : grid.batch) {
      for (const double nodes : grid.nodes) {
        for (const double gbps : grid.gbps) {
          cells.push_back(predict_cell(setting, {nodes, gbps, batch, compute, 0, 0, {}, ""}));
        }
      }
    }
  }
  return cells;
}

// The speed-up of a step by an imaginary codec, compared with the baseline, at the middle point of the grid.
// `ns`: time per element of encode, of merge, and of decode. `ratio`: factor by which it makes bytes smaller.
struct Trade {
  double ns;
  double ratio;
  double speedup;
};
std::vector<Trade> trades_of(const PlanSetting& base, const Cell& middle) {
  const PlanSetting setting = setting_of(base, middle);
  std::vector<Trade> trades;
  for (double ns = 0.03; ns < 150; ns *= std::sqrt(std::sqrt(10.0))) {
    for (double ratio = 1; ratio < 300; ratio *= std::sqrt(2.0)) {
      CodecCost codec = setting.cost("raw");
      codec.bytes = codec.most_bytes = 4 / ratio;
      codec.encode_ns = codec.merge_ns = codec.decode_ns = ns;
      const CodecCost* const one = &codec;
      const StepPlan plan = plan_step(setting.calibration, {&one, 1}, setting.buckets, setting.compute(), setting.nodes,
                                      setting.strategies);
      trades.push_back({ns, ratio, middle.baseline / plan.time.step});
    }
  }
  return trades;
}

Cell middle_of(const PlanSetting& setting, const WhatIf& grid) {
  const auto middle = [](const std::vector<double>& values) { return values[values.size() / 2]; };
  return predict_cell(setting,
                      {middle(grid.nodes), middle(grid.gbps), middle(grid.batch), middle(grid.compute), 0, 0, {}, ""});
}

void print_grid(const PlanSetting& setting, const WhatIf& grid, const std::vector<Cell>& cells) {
  const std::string baseline = baseline_row(setting).codec;
  fmt::print(
      "{}, port {}{}, lanes {}:\nThe finest codec within 3 % of the fastest, and the speed-up of a step compared "
      "with {}.\n",
      setting.model.name, setting.calibration.port, origin_text(setting), setting.calibration.lanes,
      baseline == "ideal" ? "an ideal exchange, which is as fast\nas the links and uses no core"
                          : baseline + ", as measured");
  std::vector<std::string> names = setting.codecs;
  for (const PlanRow& row : rival_bf16_rows(setting)) names.push_back(row.codec);
  fmt::print("-: none of these codecs is faster by {:.0f} % or more: {}.\n", kWorthIt * 100, fmt::join(names, ", "));
  size_t begin = 0;
  for (const double compute : grid.compute) {
    for (const double batch : grid.batch) {
      fmt::print("\nbatch {:g}, computing {:g}x as fast: {:.1f} ms a step\n{:>8}", batch, compute,
                 cells[begin].alone * 1e3, "Gb/s");
      for (const double nodes : grid.nodes) fmt::print(" {:>15}", fmt::format("{:g} nodes", nodes));
      fmt::print("\n");
      for (size_t rate = 0; rate < grid.gbps.size(); ++rate) {
        fmt::print("{:>8g}", grid.gbps[rate]);
        for (size_t i = 0; i < grid.nodes.size(); ++i) {
          const Cell& cell = cells[begin + i * grid.gbps.size() + rate];
          fmt::print(" {:>15}", cell.gains() ? fmt::format("{} {:.2f}", cell.winner().codec, cell.speedup()) : "-");
        }
        fmt::print("\n");
      }
      begin += grid.nodes.size() * grid.gbps.size();
    }
  }
  const auto gaining = std::ranges::count_if(cells, [](const Cell& each) { return each.gains(); });
  fmt::print("\n{} of {} cells gain by compressing.\n", gaining, cells.size());
}

std::string grid_json(const PlanSetting& setting, const std::vector<Cell>& cells, const Cell& middle,
                      const std::vector<Trade>& trades) {
  nlohmann::json result = {{"model", setting.model.name},
                           {"port", setting.calibration.port},
                           {"calibrated", setting.calibrated},
                           {"lanes", setting.calibration.lanes},
                           {"worth_it", kWorthIt},
                           {"baseline", baseline_row(setting).codec},
                           {"cells", nlohmann::json::array()}};
  for (const Cell& cell : cells) {
    nlohmann::json steps;
    for (const WhatIfStep& each : cell.steps) steps[each.codec] = each.seconds * 1e3;
    result["cells"].push_back({{"nodes", cell.nodes},
                               {"gbps", cell.gbps},
                               {"batch", cell.batch},
                               {"compute", cell.compute},
                               {"alone_ms", cell.alone * 1e3},
                               {"baseline_ms", cell.baseline * 1e3},
                               {"step_ms", steps},
                               {"raw_limit", cell.raw_limit},
                               {"winner", cell.gains() ? cell.winner().codec : ""},
                               {"speedup", cell.speedup()}});
  }
  nlohmann::json& trade = result["trade"];
  trade = {{"nodes", middle.nodes}, {"gbps", middle.gbps}, {"batch", middle.batch}, {"compute", middle.compute}};
  trade["points"] = nlohmann::json::array();
  for (const Trade& each : trades) trade["points"].push_back({each.ns, each.ratio, each.speedup});
  trade["codecs"] = nlohmann::json::array();
  for (const std::string& name : setting.codecs) {
    const CodecCost* const cost = setting.find_cost(name);
    if (cost == nullptr) continue;
    const double width = (cost->width(middle.nodes / 2) + cost->result_width(middle.nodes)) / 2;
    trade["codecs"].push_back({name, (cost->merge_ns + cost->decode_ns) / 2, 4 / width});
  }
  return result.dump();
}

}  // namespace

void run_what_if(const PlanOptions& options) {
  PlanSetting setting = make_plan_setting(options);
  // Codecs without an error bound would win most cells, and advice() names them second only.
  if (options.codecs.empty())
    std::erase_if(setting.codecs, [](const std::string& each) { return !states_bound(each); });
  const WhatIf grid = parse_what_if(options.what_if, setting);
  const std::vector<Cell> cells = cells_of(setting, grid);
  if (options.json) {
    const Cell middle = middle_of(setting, grid);
    fmt::print("{}\n", grid_json(setting, cells, middle, trades_of(setting, middle)));
  } else {
    print_grid(setting, grid, cells);
  }
}

}  // namespace gradlane
