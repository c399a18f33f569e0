// ethtool.h - what ethtool knows of network interfaces (control thread only; no DPDK)
#pragma once

#include <optional>
#include <set>
#include <string>

namespace gradlane {

// Names of the features of an interface that are on, as `ethtool -k` has them for each bit: "rx-gro",
// "tx-checksum-ip-generic"; empty if it cannot be asked.
[[nodiscard]] std::set<std::string> active_features(const std::string& interface);

// Switches those of these features that the interface has and lets be switched. 0, or why it cannot be asked (errno).
[[nodiscard]] int set_features(const std::string& interface, const std::set<std::string>& names, bool on);

// The other end of a veth in this network namespace; nothing: no veth, or its other end is elsewhere.
[[nodiscard]] std::optional<std::string> veth_peer(const std::string& interface);

}  // namespace gradlane
