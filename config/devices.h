// devices.h - what is known of DPDK's device arguments before DPDK is started (set-up only)
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "config/config.h"

namespace gradlane {

// What two ports of a node cannot have both: "net_memif0" of "net_memif0,role=server", a PCI address in full, the name
// of a link.
[[nodiscard]] std::string device_key(const PortConfig& port);

// "0000:03:00.0", and "03:00.0" in short.
[[nodiscard]] bool is_pci_address(std::string_view text);

// Of a card, as the kernel writes it: "0000:41:0a.0" of "41:0A.0,queues=2".
[[nodiscard]] std::string full_pci_address(std::string_view device);

// Why this device cannot carry packets of that MTU, or would damage them, or cannot serve so many lanes; empty if
// nothing is known against it.
[[nodiscard]] std::string device_fault(const PortConfig& port, size_t ip_mtu, unsigned lanes);

// The same for a port of an accelerator, which has one worker and passes frames with VLAN tags on.
[[nodiscard]] std::string accelerator_device_fault(const PortConfig& port, size_t ip_mtu);

// The kernel's interface that it stands on, or makes: "eth1" of "net_af_packet0,iface=eth1"; empty if it names none.
[[nodiscard]] std::string interface_name(const PortConfig& port);

}  // namespace gradlane
