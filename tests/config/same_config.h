// same_config.h - comparison of two configurations, for tests
#pragma once

#include <tuple>
#include <vector>

#include "config/accelerator.h"
#include "config/addresses.h"
#include "config/choices.h"
#include "config/config.h"
#include "config/loader.h"

namespace gradlane::test {

// These functions fail to compile when a struct gets another field.
inline auto fields(const NodeAddress& node) {
  const auto& [rank, ip, mac, host, real, udp_port] = node;
  return std::tuple(rank, ip, mac, host, real, udp_port);
}

inline auto fields(const PortConfig& port) {
  const auto& [name, kind, device, nodes, mac] = port;
  return std::tuple(name, kind, device, nodes, mac);
}

inline auto fields(const InjectedFaults& faults) {
  const auto& [drop, duplicate, reorder, corrupt, delay, delay_time, seed] = faults;
  return std::tuple(drop, duplicate, reorder, corrupt, delay, delay_time, seed);
}

inline auto fields(const AcceleratorConfig& config) {
  const auto& [file, host, wire, interface, superpackets, mtu, codec, tos_compressed, tos_wire, udp_port, repack,
               repack_hold, connections, memory, hugepages, idle, core, faults, containment, user, admin, log,
               log_file] = config;
  return std::tuple(fields(host), fields(wire), interface, superpackets, mtu, codec.name(), tos_compressed, tos_wire,
                    udp_port, repack, repack_hold, connections, memory, hugepages, idle, core, fields(faults),
                    containment, user, admin, log, log_file);
}

inline bool same(const AcceleratorConfig& a, const AcceleratorConfig& b) { return fields(a) == fields(b); }
// Compares all keys by their rows (config/key_types.h), and the fields that the text does not show.
inline bool same(const NodeConfig& a, const NodeConfig& b) {
  const auto all = [](const auto& list) {
    std::vector<decltype(fields(list.front()))> items;
    for (const auto& it : list) items.push_back(fields(it));
    return items;
  };
  return config_text(a) == config_text(b) && all(a.nodes) == all(b.nodes) && all(a.ports) == all(b.ports) &&
         plan_text(a.plan) == plan_text(b.plan);
}

}  // namespace gradlane::test
