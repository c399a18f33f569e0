// setup.cc - `gradlane accelerator up` and `down`, which route a host's network through an accelerator (main thread
// only)
#include "dataplane/accelerator/commands/setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <net/if.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <variant>

#include "base/error.h"
#include "config/accelerator.h"
#include "dataplane/accelerator/commands/kernel_network.h"
#include "dataplane/accelerator/commands/rtnetlink.h"
#include "dataplane/accelerator/commands/saved_wire.h"
#include "dataplane/accelerator/kernel/bypass.h"
#include "dataplane/accelerator/kernel/nft_batch.h"
#include "dataplane/accelerator/kernel/offloads.h"
#include "dataplane/kernel/ethtool.h"

namespace gradlane {
namespace {

// Features with which a NIC or the kernel changes received packets before a packet socket gets them. The list has
// rx-checksum too: the NIC's verdict on the checksum of a frame would not be true any more when the kernel has
// forwarded the frame.
const std::set<std::string> kOnArrival = {"rx-gro", "rx-lro", "rx-gro-hw", "rx-gro-list", "rx-checksum"};

std::string ipv6_switch(const std::string& interface) {
  return fmt::format("/proc/sys/net/ipv6/conf/{}/disable_ipv6", interface);
}

// Returns whether the kernel uses IPv6 on the interface. A kernel without IPv6 has no such file.
bool speaks_ipv6(const std::string& interface) {
  std::ifstream file(ipv6_switch(interface));
  int disabled = 1;
  return (file >> disabled) && disabled == 0;
}

void set_ipv6(const std::string& interface, bool on) {
  if (speaks_ipv6(interface) == on) return;
  std::ofstream file(ipv6_switch(interface));
  if (file << (on ? 0 : 1) << std::flush) return;
  throw SetupError(fmt::format("{} cannot be written", ipv6_switch(interface)));
}

void switch_features(const std::string& interface, const std::set<std::string>& names, bool on) {
  const int error = set_features(interface, names, on);
  if (error == 0) return;
  throw SetupError(fmt::format("offloads of {} ({}) cannot be switched {}: {}", interface, fmt::join(names, ", "),
                               on ? "on" : "off", std::strerror(error)));
}

std::set<std::string> active_on_arrival(const std::string& interface) {
  std::set<std::string> active = active_features(interface);
  std::erase_if(active, [](const std::string& name) { return !kOnArrival.contains(name); });
  return active;
}

std::set<std::string> only(std::set<std::string> names, bool (&wanted)(const std::string&)) {
  std::erase_if(names, [&wanted](const std::string& name) { return !wanted(name); });
  return names;
}

std::set<std::string> active_checksums(const std::string& interface) {
  std::set<std::string> active = active_features(interface);
  std::erase_if(active, [](const std::string& name) { return !name.starts_with("tx-checksum-"); });
  return active;
}

class Setup {
 public:
  explicit Setup(const AcceleratorConfig& config) : config_(config), bypass_(bypass_of(config)) {}

  void up() {
    require_pair();
    const Link wire = find_wire();
    const bool again = bypass_state(bypass_) == BypassState::kInPlace;
    prepare_pair(wire);
    prepare_wire(wire);
    bypass_ = bypass_of(config_);
    install_bypass(bypass_);
    say("nftables: table netdev {} forwards packets while no accelerator runs", bypass_.table);
    try {
      move(wire, need(config_.interface));
    } catch (const SetupError&) {
      // The addresses are still on the wire's interface, where nobody would reach them with the table installed.
      if (!again) remove_bypass(bypass_);
      throw;
    }
    // Switching IPv6 off removes the IPv6 addresses of the wire's interface, so it must come after move().
    set_ipv6(wire.name, false);
    for (const std::string& fault : offload_faults(config_)) throw SetupError(fault);
    std::printf("%s is up; now start gradlaned --config %s\n", config_.interface.c_str(), config_.file.c_str());
  }

  void down() {
    if (find_nft_table(bypass_.held)) {
      throw SetupError(fmt::format("an accelerator uses {}: stop gradlaned first", bypass_.ends()));
    }
    remove_without_pair();
    if (!bypass_.joins()) return;
    const auto wire = kernel_.find(bypass_.wire.name);
    const auto port = kernel_.find(bypass_.host.name);
    const auto before = port ? SavedWire::parse(port->alias) : std::nullopt;
    if (port && !before) {
      throw SetupError(
          fmt::format("{} was not made by gradlane accelerator up: run ip link del {}, and then this command again",
                      port->name, port->name));
    }
    remove_bypass(bypass_);
    if (wire && before) restore(*wire, *before);
    const auto host = port ? kernel_.find(config_.interface) : std::nullopt;
    if (host && wire) move(*host, *wire);
    if (port) kernel_.remove(*port);
    std::printf("%s is down%s\n", config_.interface.c_str(), port ? "" : " already");
  }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    std::printf("%s\n", fmt::format(format, std::forward<Args>(args)...).c_str());
  }

  void require_pair() const {
    if (bypass_.joins()) return;
    throw SetupError(
        fmt::format("{}: this command needs a host port that is one end of a veth pair, as in host: {{device: "
                    "\"net_af_packet0,iface=gla0\"}}, and a wire that is an interface of the kernel; here host is {}, "
                    "and wire {}; for such ports, see docs/accelerator.md, \"Set it up\"",
                    config_.file, config_.host.device, config_.wire.device));
  }

  // Removes the table that gradlaned has left, if one of its ports is no interface of the kernel.
  void remove_without_pair() {
    if (bypass_.joins()) return;
    remove_bypass(bypass_);
    say("nftables: table netdev {} does not exist any more; interfaces are not changed",
        bypass_.table.empty() ? "gradlane-..." : bypass_.table);
  }

  Link need(const std::string& name) {
    auto link = kernel_.find(name);
    if (link) return *std::move(link);
    throw SetupError(fmt::format("there is no interface '{}': `ip link` lists those of this network namespace", name));
  }

  Link find_wire() {
    Link wire = need(bypass_.wire.name);
    if (wire.master == 0) return wire;
    throw SetupError(
        fmt::format("interface {} belongs to a bridge or bond, which takes its packets: run ip link set {} nomaster, "
                    "or use the bridge or bond as the wire",
                    wire.name, wire.name));
  }

  // Makes the veth pair ready. The host's end gets the MAC address of the wire's interface, which the network knows.
  void prepare_pair(const Link& wire) {
    const std::string& inner = bypass_.host.name;
    const auto port = kernel_.find(inner);
    if (!port) {
      if (kernel_.find(config_.interface)) {
        throw SetupError(
            fmt::format("interface {} exists already, and is not one end of a veth pair with {}: run ip link del {}, "
                        "or choose another name in host: {{interface: ...}}",
                        config_.interface, inner, config_.interface));
      }
      kernel_.add_veth(config_.interface, inner, config_.mtu, wire.address);
      say("{} and {}: made as a veth pair with MTU {}", config_.interface, inner, config_.mtu);
    } else if (veth_peer(inner) != config_.interface) {
      throw SetupError(
          fmt::format("interface {} exists already, and is not a veth whose other end is {}: run ip link del {}, or "
                      "give the name of its other end in host: {{interface: ...}}",
                      inner, config_.interface, inner));
    }
    const Link own = need(inner);
    remember(own, wire);
    const Link host = need(config_.interface);
    if (host.address != wire.address) kernel_.set_address(host, wire.address);
    set_ipv6(own.name, false);
    if (speaks_ipv6(wire.name)) set_ipv6(host.name, true);
    prepare_sending(host.name, own.name);
    switch_features(own.name, active_on_arrival(own.name), false);
    for (const Link& link : {host, own}) {
      if (link.mtu != config_.mtu) kernel_.set_mtu(link, config_.mtu);
      kernel_.set_flag(link, IFF_UP, true);
    }
  }

  // Makes programs send normal packets or, with superpackets, leave checksums and segmentation of TCP to the
  // accelerator.
  void prepare_sending(const std::string& host, const std::string& own) {
    if (!config_.superpackets) return switch_features(host, active_checksums(host), false);
    for (const std::string& end : {host, own}) switch_features(end, superpacket_features(), true);
    // Checksum features switch some other segmentation features on again.
    switch_features(host, only(active_features(host), beyond_superpackets), false);
    say("{}: leaves segmentation of TCP to the accelerator, as superpackets", host);
  }

  // Returns the features of the wire's interface that are on and must be off. If superpackets are used, they include
  // transmit checksums. With these off, the kernel cuts superpackets into normal packets when it forwards them without
  // an accelerator.
  [[nodiscard]] std::set<std::string> active_against(const Link& wire) const {
    std::set<std::string> active = active_on_arrival(wire.name);
    if (config_.superpackets) active.merge(active_checksums(wire.name));
    return active;
  }

  // Stores the state of the wire's interface in the alias of the port. The first `up` stores everything. After that the
  // interface is already changed, so later calls only add features that a new configuration switches off.
  void remember(const Link& port, const Link& wire) {
    const auto before = SavedWire::parse(port.alias);
    if (before && before->interface != wire.name) {
      throw SetupError(
          fmt::format("{} was set up for {}: run gradlane accelerator down with the old configuration first", port.name,
                      before->interface));
    }
    if (before) {
      if (!config_.superpackets) return;
      SavedWire more = *before;
      more.features.merge(active_against(wire));
      if (more.features != before->features) kernel_.set_alias(port, more.text());
      return;
    }
    const SavedWire now = {.interface = wire.name,
                           .mtu = wire.mtu,
                           .ipv6 = speaks_ipv6(wire.name),
                           .promiscuous = (wire.flags & IFF_PROMISC) != 0,
                           .features = active_against(wire)};
    kernel_.set_alias(port, now.text());
  }

  // Makes the wire's interface ready. In promiscuous mode, it receives frames for any address, as it does when an
  // accelerator runs.
  void prepare_wire(const Link& wire) {
    if (wire.mtu < config_.mtu) {
      kernel_.set_mtu(wire, config_.mtu);
      say("{}: MTU {}, before {}", wire.name, config_.mtu, wire.mtu);
    }
    switch_features(wire.name, active_against(wire), false);
    kernel_.set_flag(wire, IFF_PROMISC, true);
    kernel_.set_flag(wire, IFF_UP, true);
    say("{}: up, promiscuous, receive offloads and IPv6 off", wire.name);
  }

  void restore(const Link& wire, const SavedWire& before) {
    switch_features(wire.name, before.features, true);
    if (wire.mtu != before.mtu) kernel_.set_mtu(wire, before.mtu);
    kernel_.set_flag(wire, IFF_PROMISC, before.promiscuous);
    set_ipv6(wire.name, before.ipv6);
    say("{}: restored, with MTU {}", wire.name, before.mtu);
  }

  void move(const Link& from, const Link& to) {
    const KernelNetwork network = KernelNetwork::of(kernel_, from);
    if (network.empty()) return;
    try {
      network.erase(kernel_, from);
    } catch (const SetupError&) {
      (void)network.give(kernel_, from);
      throw;
    }
    try {
      for (const std::string& refused : network.give(kernel_, to)) {
        std::fprintf(stderr, "gradlane: %s; add it by hand\n", refused.c_str());
      }
    } catch (const SetupError&) {
      (void)network.give(kernel_, from);
      network.erase(kernel_, to);
      throw;
    }
    say("{}: now has {} of {}", to.name, network.text(), from.name);
  }

  const AcceleratorConfig& config_;
  Bypass bypass_;
  RtNetlink kernel_;
};

AcceleratorConfig load(const AcceleratorSetupOptions& options) {
  AnyConfig config = load_any_config(options.config);
  if (auto* const accelerator = std::get_if<AcceleratorConfig>(&config)) return std::move(*accelerator);
  throw SetupError(options.config + " is the file of a node, not of an accelerator (mode: accelerator)");
}

// Blocks all signals. After an address is removed and before it is added elsewhere, Ctrl-C or the loss of an SSH
// connection must not stop the command.
void hold_signals() {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
}

// Checks the rights of this process, because root in a container may lack them.
void require_rights(const char* what, const AcceleratorSetupOptions& options) {
  try {
    (void)find_nft_table("gradlane");
  } catch (const SetupError& error) {
    throw SetupError(fmt::format("{}: this needs root, or CAP_NET_ADMIN: sudo gradlane accelerator {} --config {}",
                                 error.what(), what, options.config));
  }
}

}  // namespace

int run_accelerator_setup(const AcceleratorSetupOptions& options) {
  const bool up = options.command == AcceleratorSetupOptions::Command::kUp;
  const AcceleratorConfig config = load(options);
  require_rights(up ? "up" : "down", options);
  hold_signals();
  Setup setup(config);
  if (up) {
    setup.up();
  } else {
    setup.down();
  }
  return 0;
}

}  // namespace gradlane
