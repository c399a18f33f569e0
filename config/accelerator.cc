// accelerator.cc - from a YAML file to an AcceleratorConfig, and back (set-up only)
#include "config/accelerator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>

#include "config/common_sections.h"
#include "config/devargs.h"
#include "config/devices.h"
#include "config/loader.h"
#include "config/settings.h"
#include "config/values.h"
#include "config/words.h"
#include "config/yaml_tree.h"

namespace gradlane {
namespace {

constexpr const char* kAcceleratorKeys[] = {"mode",     "host",   "wire",        "codec",   "mtu",    "tos",
                                            "udp_port", "repack", "connections", "memory",  "worker", "faults",
                                            "user",     "admin",  "log",         "log_file"};
constexpr const char* kWireKeys[] = {"device", "pci"};
constexpr const char* kHostKeys[] = {"device", "pci", "interface", "superpackets"};
constexpr const char* kRepackKeys[] = {"enabled", "hold"};
constexpr const char* kAcceleratorMemoryKeys[] = {"records", "hugepages"};
constexpr const char* kAcceleratorWorkerKeys[] = {"core", "idle"};
// Of a node's file. Not `workers`, which is near enough to `worker`.
constexpr const char* kAcceleratorForeignKeys[] = {"rank",   "nodes",     "trainers", "local_reduce",
                                                   "socket", "ports",     "exchange", "timeouts",
                                                   "auth",   "telemetry", "metrics"};
constexpr KeysElsewhere kNodeElsewhere = {kAcceleratorForeignKeys,
                                          "a key of `mode: node`, and this is an accelerator's file"};

constexpr Nanos kMostHold = kMillisecond;
constexpr size_t kLeastConnections = 16;
constexpr size_t kMostConnections = size_t{1} << 20;
constexpr uint64_t kMostMemory = uint64_t{16} << 30;

// Its value, or nothing after a fault.
std::optional<Value> read_port(const Section& root, const char* name, std::span<const char* const> keys, size_t mtu,
                               PortConfig& port) {
  using Kind = PortConfig::Kind;
  static constexpr DeviceKey kKinds[] = {{"device", Kind::kDevice}, {"pci", Kind::kPci}};
  port.name = name;
  const auto value = root.need(name);
  if (!value) return std::nullopt;
  const auto chosen = read_port_device(Section(*value, keys), kKinds, port);
  if (!chosen) return std::nullopt;
  const std::string fault = accelerator_device_fault(port, mtu);
  if (fault.empty()) return chosen;
  chosen->fault(fault);
  return std::nullopt;
}

// As the kernel has them.
void read_interface(const Section& host, AcceleratorConfig& config) {
  constexpr size_t kLongest = 15;
  const auto value = host.find("interface");
  if (!value) return;
  const std::string name = value->text(kLongest).value_or("");
  const bool odd =
      name.empty() || name == "." || name == ".." || name.find_first_of("/: \t\n\v\f\r") != std::string::npos;
  if (odd) return value->fault(fmt::format("{} is no name of an interface, allowed: as in gl0", quote_text(name)));
  for (const PortConfig* const port : {&config.host, &config.wire}) {
    if (interface_name(*port) != name) continue;
    return value->fault(fmt::format("{} is that of `{}` too, allowed: the kernel's end of the veth, as in gl0",
                                    quote_text(name), port->name));
  }
  config.interface = name;
}

void read_superpackets(const Section& host, AcceleratorConfig& config) {
  host.flag("superpackets", config.superpackets);
  if (!config.superpackets || is_af_packet(config.host)) return;
  host.find("superpackets")
      ->fault(fmt::format("only packet sockets have superpackets, and the device is {}, allowed: false, or a device "
                          "net_af_packet0,iface=NAME",
                          quote_text(config.host.device)));
}

void read_both_ports(const Section& root, AcceleratorConfig& config) {
  const auto host = read_port(root, "host", kHostKeys, config.mtu, config.host);
  const auto wire = read_port(root, "wire", kWireKeys, config.mtu, config.wire);
  if (!host || !wire) return;
  const Section section(*root.find("host"), kHostKeys);
  read_interface(section, config);
  read_superpackets(section, config);
  if (device_key(config.host) == device_key(config.wire)) {
    return wire->fault(
        fmt::format("the device {} is that of host too, allowed: different ones", quote_text(device_key(config.wire))));
  }
  const std::string interface = interface_name(config.wire);
  if (interface.empty() || interface != interface_name(config.host)) return;
  wire->fault(fmt::format("the interface {} is that of host too, allowed: different ones", quote_text(interface)));
}

void read_accelerator_codec(const Section& root, Codec& codec) {
  const size_t faults = root.value().faults().count();
  read_codec(root, codec);
  if (root.value().faults().count() != faults) return;
  if (codec.row().accelerator) return;
  root.find("codec")->fault(fmt::format("an accelerator does not compress with {}, allowed: {}, as in {}", codec.name(),
                                        fmt::join(accelerator_codecs(), ", "), kDefaultLossyCodec));
}

void read_repack(const Section& root, AcceleratorConfig& config) {
  const auto value = root.find("repack");
  if (!value) return;
  const Section section(*value, kRepackKeys);
  section.flag("enabled", config.repack);
  section.duration("hold", config.repack_hold, 0, kMostHold);
}

void read_memory(const Section& root, AcceleratorConfig& config) {
  const auto value = root.find("memory");
  if (!value) return;
  const Section section(*value, kAcceleratorMemoryKeys);
  section.size("records", config.memory, kMiB, kMostMemory);
  section.flag("hugepages", config.hugepages);
}

void read_worker(const Section& root, AcceleratorConfig& config) {
  const auto value = root.find("worker");
  if (!value) return;
  const Section section(*value, kAcceleratorWorkerKeys);
  if (const auto core = section.find("core")) {
    if (const auto number = core->whole(0, kMaxCore)) config.core = static_cast<unsigned>(*number);
  }
  read_idle(section, config.idle);
}

AcceleratorConfig read_accelerator(const ConfigTree& source) {
  ConfigFaults faults(source.name, source.words);
  AcceleratorConfig config;
  config.file = source.name;
  const Section root(Value(source.root, "", faults), kAcceleratorKeys, kNodeElsewhere);
  root.whole("mtu", config.mtu, kMinIpMtu, kMaxIpMtu);
  read_both_ports(root, config);
  read_accelerator_codec(root, config.codec);
  const TosClass classes[] = {{"compressed", config.tos_compressed}, {"wire", config.tos_wire}};
  read_tos(root, classes, 4);  // 0 is that of all programs
  root.whole("udp_port", config.udp_port, 1, kMaxUdpPort);
  read_repack(root, config);
  root.whole("connections", config.connections, kLeastConnections, kMostConnections);
  read_memory(root, config);
  read_worker(root, config);
  read_faults(root, config.faults);
  read_user(root, config.user);
  if (const auto admin = root.find("admin")) config.admin = admin->text(kLongestSocket).value_or("");
  read_log(root, config.log, config.log_file);
  faults.throw_first();
  return config;
}

}  // namespace

AnyConfig parse_any_config(std::string_view text, const std::string& name, const NodeChoice& choice) {
  return read_any_config({parse_yaml(text, name), name, {}}, choice);
}

AnyConfig read_any_config(const ConfigTree& source, const NodeChoice& choice) {
  const YamlNode* const mode = accelerator_mode(source.root);
  if (mode == nullptr) return read_config(source, choice);
  if (choice.rank) {
    ConfigFaults faults(source.name, source.words);
    faults.add(mode->place, "mode", "this is an accelerator's file, which has no ranks, allowed: no --rank");
    faults.throw_first();
  }
  return read_accelerator(source);
}

AnyConfig load_any_config(const std::string& path, std::optional<unsigned> rank,
                          std::span<const std::string> settings) {
  ConfigTree source{parse_yaml(read_config_file(path), path), path, {}};
  apply_settings(source, settings);
  return read_any_config(source, this_machine(rank));
}

std::string config_text(const AcceleratorConfig& config) {
  // A host port that makes its interface has no other one.
  const bool other = config.interface != interface_name(config.host);
  const std::string interface = other ? ", interface: " + in_quotes(config.interface) : "";
  const char* const superpackets = config.superpackets ? ", superpackets: true" : "";
  std::string text = fmt::format("mode: accelerator\nhost: {{{}{}{}}}\nwire: {{{}}}\n", device_text(config.host),
                                 interface, superpackets, device_text(config.wire));
  text += fmt::format("codec: {}\nmtu: {}\ntos: {{compressed: {:#04x}, wire: {:#04x}}}\nudp_port: {}\n",
                      config.codec.name(), config.mtu, config.tos_compressed, config.tos_wire, config.udp_port);
  text += fmt::format("repack: {{enabled: {}, hold: {}}}\n", config.repack, duration_text(config.repack_hold));
  text += fmt::format("connections: {}\nmemory: {{records: {}, hugepages: {}}}\n", config.connections,
                      size_text(config.memory), config.hugepages);
  const std::string core = config.core ? fmt::format("core: {}, ", *config.core) : "";
  text += fmt::format("worker: {{{}idle: {}}}\n", core, kIdleWords[static_cast<size_t>(config.idle)]);
  text += faults_text(config.faults);
  if (!config.user.empty()) text += fmt::format("user: {}\n", in_quotes(config.user));
  if (!config.log_file.empty()) text += fmt::format("log_file: {}\n", in_quotes(config.log_file));
  return text + fmt::format("admin: {}\nlog: {}\n", in_quotes(config.admin), config.log);
}

}  // namespace gradlane
