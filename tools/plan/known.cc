// known.cc - what this repository has measured: rings, errors of predictions, and effects of codecs on trainings (pure)
#include "tools/plan/known.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gradlane {
namespace {

// Returns how far two numbers of cores are apart.
double distance(double cores, double wanted) {
  if (wanted <= 0) return -cores;
  return std::abs(std::log(cores / wanted));
}

}  // namespace

std::span<const KnownRing> known_rings() {
  static const std::vector<KnownRing> rings = {
#include "tools/plan/known/rings.inc"
  };
  return rings;
}

std::span<const StepErrors> step_errors() {
  static const std::vector<StepErrors> errors = {
#include "tools/plan/known/errors.inc"
  };
  return errors;
}

std::span<const CodecEffect> codec_effects() {
  static const std::vector<CodecEffect> effects = {
#include "tools/plan/known/effects.inc"
  };
  return effects;
}

std::vector<KnownRing> nearest_rings(std::span<const KnownRing> rings, std::string_view port, double cores) {
  std::vector<KnownRing> found;
  for (const KnownRing& each : rings) {
    if (each.port != port) continue;
    const double far = distance(each.cores, cores);
    if (!found.empty() && far > distance(found.front().cores, cores)) continue;
    if (!found.empty() && far < distance(found.front().cores, cores)) found.clear();
    found.push_back(each);
  }
  return found;
}

const StepErrors* find_errors(std::span<const StepErrors> errors, bool calibrated, double cores) noexcept {
  const StepErrors* nearest = nullptr;
  for (const StepErrors& each : errors) {
    if (each.calibrated != calibrated) continue;
    if (nearest == nullptr || distance(each.cores, cores) < distance(nearest->cores, cores)) nearest = &each;
  }
  return nearest;
}

const CodecEffect* find_effect(std::span<const CodecEffect> effects, std::string_view kind,
                               std::string_view row) noexcept {
  const auto found =
      std::ranges::find_if(effects, [&](const CodecEffect& each) { return each.kind == kind && each.row == row; });
  return found == effects.end() ? nullptr : &*found;
}

std::string kind_of_model(const std::string& name) {
  constexpr std::pair<const char*, const char*> kWords[] = {{"mlp", "mlp"},  {"conv", "conv"},    {"resnet", "conv"},
                                                            {"vgg", "conv"}, {"alexnet", "conv"}, {"gpt", "gpt"},
                                                            {"bert", "gpt"}};
  for (const auto& [word, kind] : kWords) {
    if (name.find(word) != name.npos) return kind;
  }
  return "";
}

}  // namespace gradlane
