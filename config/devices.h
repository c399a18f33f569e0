// devices.h - checks of DPDK's device arguments before DPDK is started (set-up only)
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "config/config.h"

namespace gradlane {

// Returns a name that no two ports of a node can share: "net_memif0" for "net_memif0,role=server", a full PCI address,
// the name of a link, or "udp" for sockets.
[[nodiscard]] std::string device_key(const PortConfig& port);

// Returns whether this is a PCI address: "0000:03:00.0", or "03:00.0" for short.
[[nodiscard]] bool is_pci_address(std::string_view text);

// Returns the address of a card as the kernel writes it: "0000:41:0a.0" for "41:0A.0,queues=2".
[[nodiscard]] std::string full_pci_address(std::string_view device);

// Returns why this device cannot carry packets of that MTU, would damage them, or cannot serve that number of lanes.
// Returns an empty string if no such reason is known.
[[nodiscard]] std::string device_fault(const PortConfig& port, size_t ip_mtu, unsigned lanes);

// Returns the same for a port of an accelerator, which has one worker and passes on frames with VLAN tags.
[[nodiscard]] std::string accelerator_device_fault(const PortConfig& port, size_t ip_mtu);

// Returns the kernel's interface that the device uses or makes: "eth1" for "net_af_packet0,iface=eth1". Empty if it
// names none.
[[nodiscard]] std::string interface_name(const PortConfig& port);

}  // namespace gradlane
