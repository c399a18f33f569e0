// dump.cc - a NodeConfig as the text of a file, and as a digest (set-up only)
#include <fmt/format.h>

#include "config/addresses.h"
#include "config/common_sections.h"
#include "config/loader.h"
#include "config/strategies.h"
#include "config/values.h"
#include "config/words.h"

namespace gradlane {
namespace {

std::string mac_entry(const std::optional<MacAddress>& mac) {
  return mac ? fmt::format(", mac: {}", in_quotes(mac_text(*mac))) : "";
}

// Colons may mean something else to YAML.
std::string ip_entry(const NodeAddress& node) {
  const std::string text = ip_text(address_of(node));
  return ipv4_of(address_of(node)) ? text : in_quotes(text);
}

std::string nodes_text(const NodeConfig& config) {
  std::string text = "nodes:\n";
  for (const NodeAddress& node : config.nodes) {
    const std::string host = node.host.empty() ? "" : fmt::format(", host: {}", in_quotes(node.host));
    const std::string port = node.udp_port ? fmt::format(", udp_port: {}", *node.udp_port) : "";
    text += fmt::format("  - {{rank: {}, ip: {}{}{}{}}}\n", node.rank, ip_entry(node), port, mac_entry(node.mac), host);
  }
  return text;
}

std::string ports_text(const NodeConfig& config) {
  if (config.ports.empty()) return "ports: []\n";
  std::string text = "ports:\n";
  for (const PortConfig& port : config.ports) {
    text += fmt::format("  - name: {}\n    {}\n", in_quotes(port.name), device_text(port));
    if (!port.nodes.empty()) text += fmt::format("    nodes: [{}]\n", fmt::join(port.nodes, ", "));
    if (port.mac) text += fmt::format("    mac: {}\n", in_quotes(mac_text(*port.mac)));
  }
  return text;
}

// In quotes: commas may be part of a name.
std::string strategies_text(const NodeConfig& config) {
  std::vector<std::string> names = strategy_names(config.strategies);
  for (std::string& it : names) it = in_quotes(it);
  return fmt::format("[{}]", fmt::join(names, ", "));
}

// 64-bit FNV-1a.
class Digest {
 public:
  void add(uint32_t value) noexcept {
    for (int shift = 0; shift < 32; shift += 8) {
      state_ = (state_ ^ (value >> shift & 0xff)) * 0x100000001b3;
    }
  }
  void add(const NodeConfig& config, const NodeAddress& node) noexcept {
    add(node.rank);
    add(node.ip);
    if (!needs_sockets(config)) return;
    const IpAddress address = address_of(node);
    for (size_t i = 0; i < address.size(); i += 4) {
      add(uint32_t{address[i]} << 24 | uint32_t{address[i + 1]} << 16 | uint32_t{address[i + 2]} << 8 | address[i + 3]);
    }
    add(udp_port_of(config, node));
  }
  [[nodiscard]] uint64_t value() const noexcept { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace

std::string config_text(const NodeConfig& config) {
  const auto time = [](Nanos value) { return duration_text(value); };
  std::string text = fmt::format("mode: node\nrank: {}\n", config.rank) + nodes_text(config);
  text += fmt::format("trainers: {}\nlocal_reduce: {}\nsocket: {}\nadmin: {}\n", config.trainers, config.local_reduce,
                      in_quotes(config.socket), in_quotes(config.admin));
  text += fmt::format("codec: {}\nstrategies: {}\nmtu: {}\nudp_port: {}\n",
                      config.auto_codec.empty() ? config.codec.name() : config.auto_codec, strategies_text(config),
                      config.mtu, config.udp_port);
  if (config.auto_strategy) text += "strategy: auto\n";
  if (!config.calibration.empty()) text += fmt::format("calibration: {}\n", in_quotes(config.calibration));
  if (!config.plan_file.empty()) text += fmt::format("plan: {}\n", in_quotes(config.plan_file));
  text += fmt::format("tos: {{compressed: {:#04x}, raw: {:#04x}, control: {:#04x}}}\n", config.tos_compressed,
                      config.tos_raw, config.tos_control);
  text += ports_text(config);
  text += fmt::format("workers: {{lanes: {}, threads: {}, cores: [{}], idle: {}}}\n", config.lanes, config.threads,
                      fmt::join(config.cores, ", "), kIdleWords[static_cast<size_t>(config.idle)]);
  text +=
      fmt::format("memory: {{hugepages: {}, per_trainer: {}}}\n", config.hugepages, size_text(config.trainer_memory));
  text += fmt::format("exchange: {{window: {}, operations: {}, max_tensor: {}, queue_target: {}}}\n", config.window,
                      config.operations, size_text(config.max_tensor), config.queue_target);
  text += fmt::format("timeouts: {{peer: {}, start: {}, operation: {}, shutdown: {}, min_rto: {}}}\n",
                      time(config.peer_timeout), time(config.start_timeout), time(config.operation_timeout),
                      time(config.shutdown_timeout), time(config.min_rto));
  if (!config.key_file.empty()) text += fmt::format("auth: {{key_file: {}}}\n", in_quotes(config.key_file));
  if (!config.user.empty()) text += fmt::format("user: {}\n", in_quotes(config.user));
  text += faults_text(config.faults);
  if (!config.log_file.empty()) text += fmt::format("log_file: {}\n", in_quotes(config.log_file));
  if (config.metrics) text += fmt::format("metrics: {}\n", in_quotes(address_text(*config.metrics)));
  return text + fmt::format("telemetry: {}\nlog: {}\n", config.telemetry, config.log);
}

RingSettings ring_settings(const NodeConfig& config) {
  Digest addresses;
  for (const NodeAddress& node : config.nodes) addresses.add(config, node);
  RingSettings settings;
  settings.nodes = static_cast<uint16_t>(config.nodes.size());
  settings.trainers = static_cast<uint16_t>(config.trainers);
  settings.lanes = static_cast<uint16_t>(config.lanes);
  settings.udp_port = config.udp_port;
  settings.tos_compressed = config.tos_compressed;
  settings.tos_raw = config.tos_raw;
  settings.tos_control = config.tos_control;
  settings.local_reduce = config.local_reduce ? 1 : 0;
  settings.addresses = static_cast<uint32_t>(addresses.value() ^ addresses.value() >> 32);
  return settings;
}

uint64_t rank_table_digest(const NodeConfig& config) {
  Digest digest;
  digest.add(static_cast<uint32_t>(config.nodes.size()));
  for (const NodeAddress& node : config.nodes) digest.add(config, node);
  digest.add(config.trainers);
  digest.add(config.local_reduce ? 1 : 0);
  digest.add(config.lanes);
  digest.add(config.udp_port);
  digest.add(uint32_t{config.tos_compressed} << 16 | uint32_t{config.tos_raw} << 8 | config.tos_control);
  return digest.value();
}

}  // namespace gradlane
