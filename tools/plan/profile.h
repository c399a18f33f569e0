// profile.h - a profile of a model, as gradlane.torch.profile() writes it (docs/plan.md)
#pragma once

#include <string>
#include <string_view>

#include "collectives/cost/models.h"

namespace gradlane {

// A profile is JSON:
//
//   {"name": "...", "batch": 32, "forward_ms": 20, "backward_ms": 45,
//    "layers": [{"name": "fc.weight", "elements": 4096, "backward_ms": 0.3}, ...]}
//
// Layers are in the order of forward. Their times determine when their gradients are ready. If no layer has a time, the
// number of elements takes its place. If `forward_ms` is missing, it is half of `backward_ms`. A profile without
// `backward_ms` has no measurements and only describes the layers. The functions throw SetupError: "FILE:
// layers[2].elements: what is wrong, what is allowed".
struct Profile {
  ModelTable table;
  double forward = 0;  // s, of the whole batch
};
[[nodiscard]] Profile parse_profile(std::string_view text, const std::string& file);
[[nodiscard]] Profile load_profile(const std::string& path);

}  // namespace gradlane
