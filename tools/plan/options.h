// options.h - the options of `gradlane plan`, understood and checked
#pragma once

#include <string>
#include <vector>

#include "collectives/plan/step.h"

namespace gradlane {

// As the user wrote them. Empty lists and strings stand for the defaults.
struct PlanOptions {
  std::string model;  // of model_names(), or FILE: a profile
  std::string nodes;
  std::string gbps;
  std::string batch;
  std::string compute_ms;
  std::vector<std::string> codecs;      // as codec_list() takes them
  std::vector<std::string> strategies;  // of find_strategies()
  std::string calibration;              // FILE, or "none"
  std::vector<std::string> places;      // where one may be, if nobody says: the first that can be used here
  std::string port;                     // without a calibration
  std::string lanes;
  std::string mtu;
  std::string latency_us;
  std::vector<std::string> what_if;  // NAME=FROM..TO, NAME=A,B,C
  std::vector<std::string> widths;   // recordings
  bool paper = false;
  bool json = false;
  // ---- Only to calibrate, which needs none of the above but port, lanes, json
  bool calibrate = false;
  std::string output;
  std::string socket;
  std::string admin;
  std::string rank;
  bool alone = false;
  bool quick = false;
};

// PlanSetting::compute_from of a known model, where nobody says how long it computes.
inline constexpr const char* kAsV100 = "as on a V100";

// What to reckon with.
struct PlanSetting {
  ModelTable model;
  std::vector<PlanBucket> buckets;
  StepCompute sample;  // s of one sample
  std::string compute_from;
  unsigned batch = 1;
  unsigned nodes = 4;
  double gbps = 10;
  Calibration calibration;
  bool calibrated = false;
  std::string ignored;              // of `places`: which file cannot be used here, and why; empty: none, or one can
  std::vector<std::string> codecs;  // names; "raw" is not among them
  bool follows = false;             // fixed:adaptive was asked for, whose figures are those of kFollowedCodec
  std::vector<StrategyId> strategies;
  std::vector<StrategyId> lacking;  // usual ones that the ring that was calibrated does not allow
  bool nodes_assumed = false;       // nobody has said or measured it
  bool gbps_assumed = false;

  [[nodiscard]] StepCompute compute() const noexcept { return {sample.forward * batch, sample.backward * batch}; }
  // Whether links may be faster than `gbps`.
  [[nodiscard]] bool at_least() const noexcept { return calibration.link.at_least; }
  // Of the codec with that name, which the calibration has.
  [[nodiscard]] const CodecCost& cost(const std::string& name) const { return *calibration.find(name); }
};

[[nodiscard]] PlanPort plan_port_of(const std::string& text);
[[nodiscard]] unsigned plan_lanes_of(const std::string& text, unsigned usual = 1);

// Throws SetupError naming the option, what was given and what is allowed; so do those above.
[[nodiscard]] PlanSetting make_plan_setting(const PlanOptions& options);

// Ranges of --what-if; a name that is not there has the setting's own value alone.
struct WhatIf {
  std::vector<double> nodes;
  std::vector<double> gbps;
  std::vector<double> batch;
  std::vector<double> compute;  // how much faster computing is
};
[[nodiscard]] WhatIf parse_what_if(const std::vector<std::string>& texts, const PlanSetting& setting);

}  // namespace gradlane
