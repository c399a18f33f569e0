// offloads.h - offloads to devices that must be off where an accelerator takes its frames (control thread)
#pragma once

#include <set>
#include <string>
#include <vector>

#include "config/accelerator.h"

namespace gradlane {

// Returns whether a feature of ethtool must be off with superpackets. The host's end of a veth may then leave
// checksums, and segmentation of TCP, to its device. It must not leave other checksums or segmentation to it: a packet
// socket cannot describe those.
[[nodiscard]] bool beyond_superpackets(const std::string& feature);
// Returns the features that both ends of the veth should have on, so that superpackets can pass both ways.
[[nodiscard]] const std::set<std::string>& superpacket_features();

// Returns a text for each offload that is on and must be off, with the command that switches it off. Interfaces of
// AF_PACKET and AF_XDP ports must not join received packets. The host's end of a veth, if it is in this network
// namespace, must not leave its checksums to the device. Then it leaves no segmentation to it either. With
// superpackets, it may leave checksums and segmentation of TCP to the device. Needs no rights.
[[nodiscard]] std::vector<std::string> offload_faults(const AcceleratorConfig& config);

// Returns advice for super-segments and unfinished checksums that still come, whatever offloads are on.
[[nodiscard]] std::string offload_advice(const AcceleratorConfig& config);

}  // namespace gradlane
