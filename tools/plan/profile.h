// profile.h - a profile of a model, as gradlane.torch.profile() writes it (docs/plan.md)
#pragma once

#include <string>
#include <string_view>

#include "collectives/plan/models.h"

namespace gradlane {

// {"name": "...", "batch": 32, "forward_ms": 20, "backward_ms": 45, "layers": [{"name": "fc.weight", "elements": 4096,
// "backward_ms": 0.3}, ...]}, layers in the order of forward. What layers take is needed for when their gradients are
// there; where no layer has it, it goes by elements. `forward_ms` is half of backward where it is not there; a profile
// without `backward_ms` has measured nothing, and says what the layers are. Throws SetupError: "FILE:
// layers[2].elements: what is wrong, what is allowed".
struct Profile {
  ModelTable table;
  double forward = 0;  // s, of the whole batch
};
[[nodiscard]] Profile parse_profile(std::string_view text, const std::string& file);
[[nodiscard]] Profile load_profile(const std::string& path);

}  // namespace gradlane
