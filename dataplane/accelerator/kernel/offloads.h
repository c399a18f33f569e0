// offloads.h - what the kernel leaves to devices, and must not where an accelerator takes its frames (control thread)
#pragma once

#include <set>
#include <string>
#include <vector>

#include "config/accelerator.h"

namespace gradlane {

// With superpackets the host's end of a veth leaves checksums, and segmentation of TCP, to its device. It must leave
// nothing else of that kind, which a packet socket has no words for: whether it is such a feature of ethtool's.
[[nodiscard]] bool beyond_superpackets(const std::string& feature);
// What both ends of the veth should have on, for superpackets to come and go.
[[nodiscard]] const std::set<std::string>& superpacket_features();

// Interfaces of AF_PACKET and AF_XDP ports must not put packets together; and the host's end of a veth, if that is in
// this network namespace, must not leave its checksums to the device, and with these all segmentation; with
// superpackets only those of TCP. A text for each that does: what is on, and the command that switches it off. Needs no
// rights.
[[nodiscard]] std::vector<std::string> offload_faults(const AcceleratorConfig& config);

// For super-segments and unfinished checksums that come all the same: what to do about them, whatever is on.
[[nodiscard]] std::string offload_advice(const AcceleratorConfig& config);

}  // namespace gradlane
