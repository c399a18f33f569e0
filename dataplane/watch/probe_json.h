// probe_json.h - results of probes as JSON, for the admin socket (control thread only)
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "dataplane/watch/prober.h"

namespace gradlane {

// Returns an array with an object per neighbour. `ours` is the identity of this node. Keys:
//   node, ip         the neighbour
//   arp              whether its MAC address is known
//   sent, answered   probes
//   rtt_us           `min` and `median` of small probes; null: none was answered
//   mtu_ok           whether packets of `mtu` bytes get there and back; null: not tried
//   largest_ok       bytes of the longest IP packet that did; 0: none
//   tos              for each `class`: ToS as `sent`, as it arrived `there`, and `back`; null: not answered
//   digest           of the table of ranks: `ours` and `theirs`
//   config           what the neighbour says about itself; null: not answered
[[nodiscard]] nlohmann::json probes_json(std::span<const ProbeResult> results, const ProbeIdentity& ours);

}  // namespace gradlane
