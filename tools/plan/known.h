// known.h - what this repository has measured: rings, errors of predictions, and effects of codecs on trainings (pure)
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/cost/measured.h"

namespace gradlane {

// lab/plan/known.py makes these tables of docs/results/data/. Each of them may be empty.
struct KnownRing {
  std::string port;  // kind: plan_port_name()
  double cores = 0;  // of a node
  MeasuredRing ring;
};
[[nodiscard]] std::span<const KnownRing> known_rings();

// Errors of predicted steps, as shares of the steps of held-out trainings.
struct StepErrors {
  bool calibrated = false;
  double cores = 0;   // of a node
  double median = 0;  // of the errors
  double most = 0;    // their 90th percentile
  unsigned steps = 0;
};
[[nodiscard]] std::span<const StepErrors> step_errors();

// The effect of a codec on trainings of one small model, compared with fp32 with the same seeds.
struct CodecEffect {
  std::string kind;  // of the model: "mlp", "conv", "gpt"
  std::string row;   // name in a plan: "fixed:adaptive", "gloo bf16"
  // Epochs to the target, divided by those of fp32: mean over the seeds that reach it. 0: none does.
  double epochs = 0;
  double difference = 0;  // of final accuracy in points, or of final loss in %
  unsigned reached = 0;   // seeds that reached the target
  unsigned seeds = 0;
};
[[nodiscard]] std::span<const CodecEffect> codec_effects();

// Returns the rings with that kind of port whose nodes have most nearly that many cores; if it is 0, most cores.
[[nodiscard]] std::vector<KnownRing> nearest_rings(std::span<const KnownRing> rings, std::string_view port,
                                                   double cores);
// Returns the errors for nodes with most nearly that many cores; if it is 0, most cores. Null: there are none.
[[nodiscard]] const StepErrors* find_errors(std::span<const StepErrors> errors, bool calibrated, double cores) noexcept;

// Returns the effect, or null if it is unknown. A kind is what kind_of_model() returns.
[[nodiscard]] const CodecEffect* find_effect(std::span<const CodecEffect> effects, std::string_view kind,
                                             std::string_view row) noexcept;

// Returns "mlp", "conv" or "gpt" for the name of a known model, or for another name that has this word; "": unknown.
[[nodiscard]] std::string kind_of_model(const std::string& name);
inline constexpr const char* kModelKinds[] = {"mlp", "conv", "gpt"};

}  // namespace gradlane
