// capabilities.h - what is asked of a device, within what it reports (control thread only)
#pragma once

#include <cstddef>

#include "config/config.h"
#include "dataplane/device/port_kinds.h"

struct rte_eth_conf;
struct rte_eth_dev_info;

namespace gradlane {

// Asks for packets of `mtu` bytes, each in one buffer, of which `room` bytes are for a frame. Throws SetupError if the
// device has no such packets.
void ask_for_mtu(const rte_eth_dev_info& info, const PortConfig& port, const DeviceTraits& traits, size_t mtu,
                 size_t room, rte_eth_conf& conf);

// Asks for IPv4 and UDP checksums: checked on receive, each that it can, and computed on send, if it can do both. True
// if it will compute them. Nothing on links inside the machine. No other offload is of use: not that buffers can be
// freed fast, as packets are sent which the exchange still refers to; nor scattered packets.
[[nodiscard]] bool ask_for_checksums(const rte_eth_dev_info& info, const DeviceTraits& traits, rte_eth_conf& conf);

}  // namespace gradlane
