// same_config.h - compares all fields of two configurations, for tests
#pragma once

#include <tuple>

#include "config/accelerator.h"
#include "config/addresses.h"
#include "config/choices.h"
#include "config/config.h"

namespace gradlane::test {

// These stop to compile when a struct gets another field.
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

// All but the name of the file.
inline auto fields(const NodeConfig& config) {
  const auto& [file, rank, nodes, trainers, local_reduce, ports, mtu, udp_port, tos_compressed, tos_raw, tos_control,
               lanes, threads, cores, idle, hugepages, trainer_memory, codec, strategies, auto_codec, auto_strategy,
               calibration, plan_file, plan, window, operations, max_tensor, queue_target, peer_timeout, start_timeout,
               operation_timeout, shutdown_timeout, min_rto, key_file, user, faults, socket, admin, metrics, telemetry,
               log, log_file] = config;
  std::vector<decltype(fields(NodeAddress{}))> node_fields;
  for (const NodeAddress& node : nodes) node_fields.push_back(fields(node));
  std::vector<decltype(fields(PortConfig{}))> port_fields;
  for (const PortConfig& port : ports) port_fields.push_back(fields(port));
  return std::tuple(rank, node_fields, trainers, local_reduce, port_fields, mtu, udp_port, tos_compressed, tos_raw,
                    tos_control, lanes, threads, cores, idle, hugepages, trainer_memory, codec.name(), strategies,
                    auto_codec, auto_strategy, calibration, plan_file, plan_text(plan), window, operations, max_tensor,
                    queue_target, peer_timeout, start_timeout, operation_timeout, shutdown_timeout, min_rto, key_file,
                    user, fields(faults), socket, admin, metrics ? address_text(*metrics) : "", telemetry, log,
                    log_file);
}

inline auto fields(const AcceleratorConfig& config) {
  const auto& [file, host, wire, interface, superpackets, mtu, codec, tos_compressed, tos_wire, udp_port, repack,
               repack_hold, connections, memory, hugepages, idle, core, faults, user, admin, log, log_file] = config;
  return std::tuple(fields(host), fields(wire), interface, superpackets, mtu, codec.name(), tos_compressed, tos_wire,
                    udp_port, repack, repack_hold, connections, memory, hugepages, idle, core, fields(faults), user,
                    admin, log, log_file);
}

inline bool same(const AcceleratorConfig& a, const AcceleratorConfig& b) { return fields(a) == fields(b); }
inline bool same(const NodeConfig& a, const NodeConfig& b) { return fields(a) == fields(b); }

}  // namespace gradlane::test
