// ethtool.h - features of network interfaces, as ethtool names them, and ends of veth pairs (control thread only; no
// DPDK)
#pragma once

#include <optional>
#include <set>
#include <string>

namespace gradlane {

// Returns the features of an interface that are on, by the names that `ethtool -k` has for single bits: "rx-gro",
// "tx-checksum-ip-generic". Returns an empty set if the kernel does not answer.
[[nodiscard]] std::set<std::string> active_features(const std::string& interface);

// Switches those of the features `names` that the interface has and allows to switch. Returns 0, or errno if the kernel
// refuses.
[[nodiscard]] int set_features(const std::string& interface, const std::set<std::string>& names, bool on);

// Returns the other end of a veth in this network namespace. Returns nothing if the interface is no veth, or if its
// other end is in another namespace.
[[nodiscard]] std::optional<std::string> veth_peer(const std::string& interface);

}  // namespace gradlane
