// probe_json.h - results of probes as JSON, for the admin socket (control thread only)
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "dataplane/watch/prober.h"

namespace gradlane {

// Returns an array with an object per neighbour; docs/troubleshooting.md has its keys. `ours` is the identity of this
// node.
[[nodiscard]] nlohmann::json probes_json(std::span<const ProbeResult> results, const ProbeIdentity& ours);

}  // namespace gradlane
