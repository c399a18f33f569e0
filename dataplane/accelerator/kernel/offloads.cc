// offloads.cc - device offloads that must be off at the interfaces of an accelerator (control thread)
#include "dataplane/accelerator/kernel/offloads.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "config/devargs.h"
#include "config/devices.h"
#include "dataplane/kernel/ethtool.h"
#include "dataplane/kernel/kernel_interface.h"

namespace gradlane {
namespace {

// Returns the interface that a port shares with the kernel, or nothing if there is none.
std::optional<std::string> shared_interface(const PortConfig& port) {
  if (!is_af_packet(port) && !is_af_xdp(port)) return std::nullopt;
  return interface_name(port);
}

// Adds a fault if an interface joins packets that arrive, before a packet socket has them.
void look_at_receiving(const PortConfig& port, std::vector<std::string>& faults) {
  static constexpr std::pair<const char*, const char*> kTogether[] = {
      {"rx-gro", "gro"}, {"rx-lro", "lro"}, {"rx-gro-hw", "rx-gro-hw"}};  // feature's name, and its name for ethtool -K
  const auto interface = shared_interface(port);
  if (!interface) return;
  const auto active = active_features(*interface);
  std::string command;
  for (const auto& [feature, word] : kTogether) {
    if (active.contains(feature)) command += fmt::format(" {} off", word);
  }
  if (command.empty()) return;
  faults.push_back(fmt::format("port {}: {} joins received packets into ones longer than the MTU: ethtool -K {}{}",
                               port.name, *interface, *interface, command));
}

// Returns whether the kernel leaves checksums to the device. If not, it cuts everything into packets itself, whatever
// segmentation is on.
bool leaves_checksums(const std::string& interface) {
  return std::ranges::any_of(active_features(interface),
                             [](const std::string& name) { return name.starts_with("tx-checksum-"); });
}

std::string superpackets_fault(const AcceleratorConfig& config, const std::string& interface, const std::string& peer) {
  if (!leaves_checksums(peer)) return "";
  std::string command;
  for (const std::string& feature : active_features(peer)) {
    if (beyond_superpackets(feature)) command += fmt::format(" {} off", feature);
  }
  if (command.empty()) return "";
  return fmt::format(
      "port {}: {}, the host's end of {}, has offloads that superpackets do not support: ethtool -K {}{}",
      config.host.name, peer, interface, peer, command);
}

}  // namespace

const std::set<std::string>& superpacket_features() {
  static const std::set<std::string> kFeatures = {"tx-checksum-ip-generic",  "tx-scatter-gather",
                                                  "tx-generic-segmentation", "tx-tcp-segmentation",
                                                  "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation",
                                                  "tx-tcp6-segmentation",    "tx-tcp-accecn-segmentation"};
  return kFeatures;
}

bool beyond_superpackets(const std::string& feature) {
  if (superpacket_features().contains(feature)) return false;
  return feature.starts_with("tx-checksum-") || feature.starts_with("tx-gso-") ||
         (feature.starts_with("tx-") && feature.ends_with("-segmentation"));
}

std::vector<std::string> offload_faults(const AcceleratorConfig& config) {
  std::vector<std::string> faults;
  look_at_receiving(config.host, faults);
  look_at_receiving(config.wire, faults);
  const auto interface = shared_interface(config.host);
  const auto peer = interface ? veth_peer(*interface) : std::nullopt;
  if (peer && config.superpackets) {
    if (std::string fault = superpackets_fault(config, *interface, *peer); !fault.empty()) {
      faults.push_back(std::move(fault));
    }
  } else if (peer && leaves_checksums(*peer)) {
    faults.push_back(fmt::format(
        "port {}: {}, the host's end of {}, leaves checksums and segmentation to its device: ethtool -K {} tx off",
        config.host.name, *peer, *interface, *peer));
  }
  return faults;
}

std::string offload_advice(const AcceleratorConfig& config) {
  const auto host = shared_interface(config.host);
  const auto wire = shared_interface(config.wire);
  const auto peer = host ? veth_peer(*host) : std::nullopt;
  std::string text;
  if (host && !config.superpackets) {
    text = fmt::format("on the host: ethtool -K {} tx off", peer.value_or("INTERFACE"));
    if (!peer) text += fmt::format(" (INTERFACE: the other end of {})", *host);
  }
  if (!text.empty() && wire) text += "; ";
  if (wire) text += fmt::format("on the wire: ethtool -K {} gro off lro off", *wire);
  return text.empty() ? "switch off segmentation and receive offloads (ethtool -K)" : text;
}

}  // namespace gradlane
