// offloads.h - device offloads that must be off at the interfaces of an accelerator (control thread)
#pragma once

#include <set>
#include <string>
#include <vector>

#include "config/accelerator.h"

namespace gradlane {

// Returns whether an ethtool feature of the host's end of a veth must be off if superpackets are used. The host's end
// may leave checksums, and segmentation of TCP, to its device. It must not leave segmentation of other protocols, or
// other kinds of checksums, to the device: a packet socket cannot describe those.
[[nodiscard]] bool beyond_superpackets(const std::string& feature);
// Returns the features that both ends of the veth should have on, so that superpackets can pass both ways.
[[nodiscard]] const std::set<std::string>& superpacket_features();

// Returns a text for each offload that is on and must be off, with the command that switches it off. Interfaces of
// AF_PACKET and AF_XDP ports must not join received packets. The host's end of a veth, if it is in this network
// namespace, must not leave its checksums to the device. A kernel that computes checksums itself also does the
// segmentation itself. With superpackets, the host's end may leave checksums and segmentation of TCP to the device.
// Needs no rights.
[[nodiscard]] std::vector<std::string> offload_faults(const AcceleratorConfig& config);

// Returns advice for super-segments and unfinished checksums that still come, whatever offloads are on.
[[nodiscard]] std::string offload_advice(const AcceleratorConfig& config);

}  // namespace gradlane
