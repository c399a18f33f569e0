// capabilities.h - requests for MTU and checksums, within what a device reports (control thread only)
#pragma once

#include <cstddef>

#include "config/config.h"
#include "dataplane/device/port_kinds.h"

struct rte_eth_conf;
struct rte_eth_dev_info;

namespace gradlane {

// Asks for an MTU of `mtu` bytes, in `conf`. A frame must fit into one buffer, which has space for `room` bytes. Throws
// SetupError if the device does not support that.
void ask_for_mtu(const rte_eth_dev_info& info, const PortConfig& port, const DeviceTraits& traits, size_t mtu,
                 size_t room, rte_eth_conf& conf);

// Asks for IPv4 and UDP checksums. On receive, the device checks each of the two that it can. On send, it computes them
// if it can compute both. Returns whether it will compute them. Asks for nothing on links inside the machine.
//
// No other offload helps. Fast free of buffers is impossible, because the exchange still refers to packets that are
// being sent. Packets are not scattered over several buffers.
[[nodiscard]] bool ask_for_checksums(const rte_eth_dev_info& info, const DeviceTraits& traits, rte_eth_conf& conf);

}  // namespace gradlane
