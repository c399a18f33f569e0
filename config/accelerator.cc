// accelerator.cc - conversion of a YAML file to an AcceleratorConfig, and back (set-up only)
#include "config/accelerator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <vector>

#include "config/common_sections.h"
#include "config/devargs.h"
#include "config/devices.h"
#include "config/key_types.h"
#include "config/loader.h"
#include "config/set_option.h"
#include "config/values.h"
#include "config/words.h"
#include "config/yaml_tree.h"

namespace gradlane {
namespace {

// Keys of a node's file. `workers` is not among them: for that word, the message suggests `worker`.
constexpr const char* kAcceleratorForeignKeys[] = {"rank",   "nodes",     "trainers", "local_reduce",
                                                   "socket", "ports",     "exchange", "timeouts",
                                                   "auth",   "telemetry", "metrics"};
constexpr KeysElsewhere kNodeElsewhere = {kAcceleratorForeignKeys,
                                          "is a key of `mode: node`, but this is an accelerator's file"};

std::string host_text(const AcceleratorConfig& config) {
  // A host port that makes its interface itself (net_tap) has no other end.
  const bool other = config.interface != interface_name(config.host);
  const std::string interface = other ? ", interface: " + in_quotes(config.interface) : "";
  const char* const superpackets = config.superpackets ? ", superpackets: true" : "";
  return fmt::format("{{{}{}{}}}", device_text(config.host), interface, superpackets);
}

std::vector<ConfigKey<AcceleratorConfig>> make_accelerator_keys() {
  using C = AcceleratorConfig;
  constexpr const char* kSame = "yes";
  constexpr uint64_t kMostConnections = uint64_t{1} << 20;
  constexpr uint64_t kMostMemory = uint64_t{16} << 30;
  std::vector<ConfigKey<C>> keys = {
      other_key<C>(
          "word", "", "mode", [](const C&) { return std::string("accelerator"); }, "none, must be given",
          "`accelerator`", kAnyNode, "says that this file configures an accelerator"),
      other_key<C>(
          "port", "", "host", host_text, "none, must be given",
          "`{device: ...}` or `{pci: ...}`, as in [ports](#ports)", kAnyNode,
          "port to the programs of this machine: `net_af_packet` on one end of a veth pair, whose other end has the "
          "IP address; or `net_tap`, whose interface has the IP address"),
      other_key<C>("name", "host", "interface", nullptr, "`gl0`", "name of an interface, up to 15 bytes", kAnyNode,
                   "the other end of that veth pair, which programs use and `gradlane accelerator up` makes"),
      other_key<C>("flag", "host", "superpackets", nullptr, "`false`",
                   "`true`, `false`; `true` only with `net_af_packet`, of which only `iface` is then used", kAnyNode,
                   "exchanges superpackets with the kernel, which leaves segmentation of TCP to gradlaned "
                   "([accelerator.md](accelerator.md))"),
      other_key<C>(
          "port", "", "wire", [](const C& of) { return fmt::format("{{{}}}", device_text(of.wire)); },
          "none, must be given", "as for `host`, but another device and interface", kAnyNode, "port to the network"),
      other_key<C>(
          "word", "", "codec", [](const C& of) { return of.codec.name(); }, "`fixed:10`",
          "`fixed:B`, `inceptionn:B`; [codecs.md](codecs.md)", kAnyNode, "codec for what this machine sends"),
      whole_key<C, kMinIpMtu, kMaxFrameMtu, &C::mtu>("", "mtu", kSame, "longest IP packet in bytes, on both sides"),
      tos_key<C, &C::tos_compressed>("compressed", kSame, "multiples of 4 from 4 to `0xfc`, both different",
                                     "ToS byte by which programs ask for compression"),
      tos_key<C, &C::tos_wire>("wire", kSame, "", "ToS byte of compressed packets on the network"),
      whole_key<C, 1, kMaxUdpPort, &C::udp_port>(
          "", "udp_port", kAnyNode,
          "UDP port at which accelerators find each other; firewalls must let it pass in both "
          "directions"),
      flag_key<C, &C::repack>("repack", "enabled", kAnyNode,
                              "combines several compressed packets into one packet on the network"),
      duration_key<C, 0, kMillisecond, &C::repack_hold>(
          "repack", "hold", kAnyNode,
          "longest time that a packet waits for others; `0s` is the same as `enabled: false`"),
      whole_key<C, 16, kMostConnections, &C::connections>(
          "", "connections", kAnyNode,
          "limit of TCP connections that are tracked at a time; further ones pass uncompressed"),
      size_key<C, kMiB, kMostMemory, &C::memory>("memory", "records", kAnyNode,
                                                 "limit of memory for data that was sent compressed over TCP and is "
                                                 "not acknowledged yet; further data is sent uncompressed"),
      flag_key<C, &C::hugepages>("memory", "hugepages", kAnyNode, "takes memory of packet buffers from hugepages"),
      other_key<C>(
          "number", "worker", "core", [](const C& of) { return of.core ? fmt::format("{}", *of.core) : ""; },
          "none: the scheduler chooses", "a CPU, 0 to 1023", kAnyNode, "pins the thread"),
      other_key<C>(
          "word", "worker", "idle", [](const C& of) { return std::string(kIdleWords[static_cast<size_t>(of.idle)]); },
          "`adaptive`", "`spin`, `yield`, `adaptive`", kAnyNode, "as `workers.idle` in a node's file"),
  };
  std::ranges::move(fault_keys<C>(), std::back_inserter(keys));
  std::vector<ConfigKey<C>> rest = {
      other_key<C>(
          "name", "", "user", [](const C& of) { return path_text(of.user); }, "none: the user stays the same",
          "name of a user", kAnyNode, "user that the daemon changes to after it has opened its devices"),
      flag_key<C, &C::containment>("", "containment", kAnyNode, "as in a node's file"),
      other_key<C>(
          "path", "", "admin", [](const C& of) { return in_quotes(of.admin); }, "`/run/gradlane/accelerator.admin`",
          "up to 107 bytes", kAnyNode, "Unix socket that the daemon makes for `gradlane stats` and `gradlane check`"),
      other_key<C>(
          "word", "", "log", [](const C& of) { return of.log; }, "`info`", "as in a node's file", kAnyNode,
          "least severe level of messages that are logged"),
      other_key<C>(
          "path", "", "log_file", [](const C& of) { return path_text(of.log_file); }, "none: standard error", "path",
          kAnyNode, "as in a node's file"),
  };
  std::ranges::move(rest, std::back_inserter(keys));
  return keys;
}

}  // namespace

std::span<const ConfigKey<AcceleratorConfig>> accelerator_keys() {
  static const std::vector<ConfigKey<AcceleratorConfig>> keys = make_accelerator_keys();
  return keys;
}

namespace {

constexpr const char* kWireKeys[] = {"device", "pci"};
constexpr const char* kHostKeys[] = {"device", "pci", "interface", "superpackets"};

// Reads a port. Returns the value that names its device, or nothing after a fault.
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

// Reads `interface`, with the kernel's rules for names of interfaces.
void read_interface(const Section& host, AcceleratorConfig& config) {
  constexpr size_t kLongest = 15;
  const auto value = host.find("interface");
  if (!value) return;
  const std::string name = value->text(kLongest).value_or("");
  const bool odd =
      name.empty() || name == "." || name == ".." || name.find_first_of("/: \t\n\v\f\r") != std::string::npos;
  if (odd) return value->fault(fmt::format("{} is not a name of an interface, allowed: as in gl0", quote_text(name)));
  for (const PortConfig* const port : {&config.host, &config.wire}) {
    if (interface_name(*port) != name) continue;
    return value->fault(
        fmt::format("{} is already the interface of `{}`, allowed: the kernel's end of the veth, as in gl0",
                    quote_text(name), port->name));
  }
  config.interface = name;
}

void read_superpackets(const Section& host, AcceleratorConfig& config) {
  host.flag("superpackets", config.superpackets);
  if (!config.superpackets || is_af_packet(config.host)) return;
  host.find("superpackets")
      ->fault(fmt::format("superpackets need a packet socket, but the device is {}, allowed: false, or a device "
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
    return wire->fault(fmt::format("the device {} is already that of host, allowed: a different one",
                                   quote_text(device_key(config.wire))));
  }
  const std::string interface = interface_name(config.wire);
  if (interface.empty() || interface != interface_name(config.host)) return;
  wire->fault(fmt::format("the interface {} is already that of host, allowed: a different one", quote_text(interface)));
}

void read_accelerator_codec(const Section& root, Codec& codec) {
  const size_t faults = root.value().faults().count();
  read_codec(root, codec);
  if (root.value().faults().count() != faults) return;
  if (codec.row().accelerator) return;
  root.find("codec")->fault(fmt::format("an accelerator cannot use codec {}, allowed: {}, as in {}", codec.name(),
                                        fmt::join(accelerator_codecs(), ", "), kDefaultLossyCodec));
}

void read_worker(const Section& root, AcceleratorConfig& config) {
  const auto section = read_section(accelerator_keys(), root, "worker", config);
  if (!section) return;
  if (const auto core = section->find("core")) {
    if (const auto number = core->whole(0, kMaxCore)) config.core = static_cast<unsigned>(*number);
  }
  read_idle(*section, config.idle);
}

AcceleratorConfig read_accelerator(const ConfigTree& source) {
  ConfigFaults faults(source.name, source.words);
  AcceleratorConfig config;
  config.file = source.name;
  const Section root(Value(source.root, "", faults), names_in(accelerator_keys(), ""), kNodeElsewhere);
  read_keys(accelerator_keys(), "", root, config);
  read_both_ports(root, config);
  read_accelerator_codec(root, config.codec);
  const TosClass classes[] = {{"compressed", config.tos_compressed}, {"wire", config.tos_wire}};
  read_tos(root, classes, 4);  // 0 is the ToS byte of all other programs
  (void)read_section(accelerator_keys(), root, "repack", config);
  (void)read_section(accelerator_keys(), root, "memory", config);
  read_worker(root, config);
  (void)read_section(accelerator_keys(), root, "faults", config);
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
    faults.add(mode->place, "mode", "this is an accelerator's file, which has no ranks, allowed: without --rank");
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

std::string config_text(const AcceleratorConfig& config) { return text_of(accelerator_keys(), config); }

}  // namespace gradlane
