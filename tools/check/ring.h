// ring.h - verdicts about links, neighbours and the ring, from the answers of a daemon (main thread only)
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "config/config.h"
#include "tools/check/report.h"

namespace gradlane {

// Check parts of `document`, the daemon's answer to "probe" (dataplane/watch/probe_json.h).
void check_ports(const NodeConfig& config, const nlohmann::json& document, CheckReport& report);
void check_neighbours(const NodeConfig& config, const nlohmann::json& document, CheckReport& report);
void check_ring(const nlohmann::json& document, CheckReport& report);

[[nodiscard]] bool all_links_up(const nlohmann::json& document);
[[nodiscard]] bool ring_is_ready(const nlohmann::json& document);
[[nodiscard]] bool all_neighbours_answer(const nlohmann::json& document);

}  // namespace gradlane
