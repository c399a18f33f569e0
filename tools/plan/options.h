// options.h - the options of `gradlane plan`, understood and checked
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/cost/measured.h"
#include "collectives/cost/step.h"
#include "tools/plan/known.h"

namespace gradlane {

// Options as the user wrote them. Empty lists and strings stand for the defaults.
struct PlanOptions {
  std::string model;  // one of model_names(), or FILE: a profile
  std::string nodes;
  std::string gbps;
  std::string batch;
  std::string compute_ms;
  std::vector<std::string> codecs;      // in the form of codec_list()
  std::vector<std::string> strategies;  // in the form of find_strategies()
  std::string calibration;              // FILE, or "none"
  // default calibration files; if the user names none, the first that can be used on this host
  std::vector<std::string> places;
  std::string port;  // kind of port, if there is no calibration
  std::string lanes;
  std::string cores;
  std::string kind;
  std::string mtu;
  std::string latency_us;
  std::vector<std::string> what_if;  // NAME=FROM..TO, NAME=A,B,C
  std::vector<std::string> widths;   // files of recorded gradients
  bool paper = false;
  bool json = false;
  // ---- Only with --calibrate, which uses none of the above but nodes, port, lanes and json
  bool calibrate = false;
  std::string output;
  std::string socket;
  std::string admin;
  std::string rank;
  std::string python;
  bool alone = false;
  bool quick = false;
};

// PlanSetting::compute_from of a known model, if the user does not say how long it computes.
inline constexpr const char* kAsV100 = "as on a V100";

// Everything that a prediction depends on.
struct PlanSetting {
  ModelTable model;
  std::vector<PlanBucket> buckets;
  StepCompute sample;  // s for one sample
  std::string compute_from;
  unsigned batch = 1;
  unsigned nodes = 4;
  double gbps = 10;
  Calibration calibration;
  bool calibrated = false;
  // file of `places` that cannot be used here, and why; empty: there is none, or another can be used
  std::string ignored;
  // Rings with measured all-reduces: that of the calibration, or known_rings(). Empty: all is predicted from parts.
  std::vector<MeasuredRing> rings;
  double known_cores = 0;            // cores of a node, if `rings` are known_rings()
  PacketCost measured_packets;       // of `rings`: without --mtu
  unsigned measured_lanes = 1;       // of `rings`: without --lanes
  std::string kind;                  // of the model: one of kModelKinds; "": unknown
  std::vector<CodecEffect> effects;  // of codecs on trainings of that kind
  std::vector<std::string> codecs;   // names; "raw" is not among them
  std::vector<StrategyId> strategies;
  bool strategies_given = false;                   // by the user
  std::vector<StrategyId> strategies_not_allowed;  // usual strategies that the calibrated ring does not allow
  bool nodes_assumed = false;                      // `nodes` was neither given nor measured
  bool gbps_assumed = false;

  [[nodiscard]] StepCompute compute() const noexcept { return {sample.forward * batch, sample.backward * batch}; }
  // Returns whether links may be faster than `gbps`.
  [[nodiscard]] bool at_least() const noexcept { return calibration.link.at_least; }
  // Returns the cost of the codec with that name, which must be in the calibration.
  [[nodiscard]] const CodecCost& cost(const std::string& name) const { return *calibration.find(name); }
  // Returns the figures with which a codec is predicted; null if there are none.
  [[nodiscard]] const CodecCost* find_cost(const std::string& name) const;
};

inline constexpr const char* kOwnLibrary = "gradlane";  // MeasuredExchange::library

// fixed:adaptive of PyTorch's hook is no codec: the hook uses a fixed:B whose B follows the gradients. It is predicted
// with the figures of kFollowedCodec.
inline constexpr const char* kAdaptiveCodec = "fixed:adaptive";
inline constexpr const char* kFollowedCodec = "fixed:10";
[[nodiscard]] bool follows_gradients(std::string_view codec) noexcept;

[[nodiscard]] PlanPort plan_port_of(const std::string& text);
[[nodiscard]] unsigned plan_lanes_of(const std::string& text, unsigned usual = 1);

// Checks the options. Throws SetupError that names the option, the value that was given and the allowed ones. The
// functions above throw it, too.
[[nodiscard]] PlanSetting make_plan_setting(const PlanOptions& options);

// Ranges of --what-if. A name that is missing in the options has only the setting's own value.
struct WhatIf {
  std::vector<double> nodes;
  std::vector<double> gbps;
  std::vector<double> batch;
  std::vector<double> compute;  // factor by which computing is faster
};
[[nodiscard]] WhatIf parse_what_if(const std::vector<std::string>& texts, const PlanSetting& setting);

}  // namespace gradlane
