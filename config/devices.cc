// devices.cc - checks of DPDK's device arguments before DPDK is started (set-up only)
#include "config/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "config/devargs.h"
#include "config/faults.h"
#include "config/values.h"
#include "config/words.h"

namespace gradlane {
namespace {

constexpr size_t kEthernetHeader = 14;
constexpr size_t kVlanTag = 4;
constexpr size_t kMemifBuffer = 2048;  // this and the next two are defaults of DPDK's drivers
constexpr size_t kPacketFrame = 2048;
constexpr size_t kPacketBlock = 4096;
constexpr size_t kPacketHeader = 66;  // header of an AF_PACKET frame, in front of the packet

constexpr size_t kVirtioQueues = 8;
constexpr size_t kVirtioSize = 1024;

size_t number(std::string_view device, std::string_view key, size_t standard) {
  const auto text = devargs_argument(device, key);
  return text ? parse_whole(*text).value_or(standard) : standard;
}

// Returns a fault if DPDK would read only a part of a number, such as the digits of "2k"; otherwise "".
std::string number_fault(std::string_view device) {
  for (const char* const key : {"bsize", "framesz", "blocksz", "qpairs", "queues", "queue_count", "queue_size"}) {
    const auto text = devargs_argument(device, key);
    if (!text || parse_decimal(*text)) continue;
    return fmt::format("{}={} is not a whole number, allowed: digits only", key, *text);
  }
  return "";
}

bool is_hex(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c) != 0; });
}

// Drivers of virtual devices in DPDK 22.11, with older names of some.
constexpr std::string_view kVirtualDrivers[] = {
    "net_af_packet", "net_af_xdp", "net_memif",       "net_vhost",    "net_virtio_user", "net_tap",   "net_tun",
    "net_pcap",      "net_ring",   "net_null",        "net_bonding",  "net_failsafe",    "net_pfe",   "net_enetfec",
    "net_softnic",   "net_netvsc", "net_vdev_netvsc", "net_octeontx", "eth_af_packet",   "eth_vhost", "virtio_user",
    "eth_tap",       "eth_pcap",   "eth_ring",        "eth_null",     "eth_bond"};

// Returns whether a name starts with a driver. Anything may follow that distinguishes its devices: net_memif0.
bool is_device(std::string_view name) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return std::ranges::all_of(name, allowed) &&
         std::ranges::any_of(kVirtualDrivers, [&](std::string_view driver) { return name.starts_with(driver); });
}

// Returns the fault of a word that is no device. Most often it is the name of an interface. `alone` is true if it has
// no arguments.
std::string no_device(std::string_view name, bool alone) {
  constexpr size_t kLongestInterface = 15;
  if (!alone || name.empty() || name.size() > kLongestInterface || name.starts_with("net_")) {
    return fmt::format("{} is not a DPDK device, allowed: as in net_memif0,role=server,...", quote_text(name));
  }
  return fmt::format(
      "{} is not a DPDK device, allowed: net_af_packet0,iface={},qdisc_bypass=0 for an interface of that name; "
      "docs/configuration.md has others",
      quote_text(name), name);
}

std::string memif_fault(std::string_view device, size_t frame) {
  const size_t buffer = number(device, "bsize", kMemifBuffer);
  if (buffer >= frame) return "";
  return fmt::format(
      "frames of this MTU have up to {} bytes, but memif's buffers have {}: they would overwrite each other; "
      "allowed: bsize={} and more, best bsize=9216",
      frame, buffer, frame);
}

// Returns a fault if there are more queues than lanes. Packets in queues that no lane reads would be lost.
std::string spread_fault(std::string_view device, std::string_view key, unsigned lanes) {
  const size_t queues = number(device, key, 1);
  if (queues <= lanes) return "";
  return fmt::format("{}={}, but workers.lanes is {}; allowed: {}=1 to {}", key, queues, lanes, key, lanes);
}

std::string af_packet_fault(std::string_view device, size_t frame, unsigned lanes) {
  if (!devargs_argument(device, "iface")) return "AF_PACKET needs a network interface; allowed: iface=NAME";
  const size_t room = number(device, "framesz", kPacketFrame);
  const size_t block = number(device, "blocksz", kPacketBlock);
  if (room < frame + kPacketHeader) {
    return fmt::format(
        "frames of this MTU have up to {} bytes, and AF_PACKET cuts off what is beyond framesz - {}; "
        "allowed: framesz={} and more, best framesz=9216,blocksz=36864",
        frame, kPacketHeader, frame + kPacketHeader);
  }
  if (block % room == 0) return spread_fault(device, "qpairs", lanes);
  return fmt::format(
      "framesz={} does not divide blocksz={}, and AF_PACKET would hang; allowed: a blocksz of {}, or a "
      "multiple of it",
      room, block, room);
}

std::string queues_fault(std::string_view device, unsigned lanes) {
  const size_t queues = number(device, "queues", 1);
  if (lanes > kVirtioQueues) {
    return fmt::format("DPDK's virtio has {} queue pairs at most, but workers.lanes is {}; allowed: lanes: {}",
                       kVirtioQueues, lanes, kVirtioQueues);
  }
  if (queues == lanes) return "";
  return fmt::format("queues={}, but workers.lanes is {}; allowed: queues={}, on both sides", queues, lanes, lanes);
}

// Allows one form of net_vhost and net_virtio_user: only that pair survives the end of either process.
std::string vhost_fault(std::string_view device, unsigned lanes) {
  if (!devargs_argument(device, "iface")) return "vhost needs a socket; allowed: iface=PATH, as on the other side";
  if (devargs_argument(device, "client") != "1") {
    return "the other side does not find a vhost server again after a restart; allowed: client=1 here, and "
           "net_virtio_user with server=1 on the other side";
  }
  return queues_fault(device, lanes);
}

std::string virtio_fault(std::string_view device, unsigned lanes) {
  const auto path = devargs_argument(device, "path");
  if (!path) return "virtio_user needs a socket; allowed: path=PATH, as on the other side";
  if (devargs_argument(device, "mac"))
    return "the device takes its MAC address from the port; allowed: the port's key 'mac'";
  if (path->starts_with("/dev/vhost")) return "";  // the other end is the kernel, or a card
  if (devargs_argument(device, "server") != "1") {
    return "a virtio_user client does not find the other side again after a restart; allowed: server=1 here, "
           "and "
           "net_vhost with client=1 on the other side";
  }
  const auto size = devargs_argument(device, "queue_size");
  if (size && number(device, "queue_size", 0) > kVirtioSize) {
    return fmt::format("queue_size={} needs more buffers than there are; allowed: queue_size={} and less", *size,
                       kVirtioSize);
  }
  return queues_fault(device, lanes);
}

}  // namespace

bool is_pci_address(std::string_view text) {
  if (text.size() == 12 && is_hex(text.substr(0, 4)) && text[4] == ':') text.remove_prefix(5);
  return text.size() == 7 && is_hex(text.substr(0, 2)) && text[2] == ':' && is_hex(text.substr(3, 2)) &&
         text[5] == '.' && text[6] >= '0' && text[6] <= '7';
}

std::string device_key(const PortConfig& port) {
  if (port.kind == PortConfig::Kind::kUdp) return "udp";  // the node's UDP ports, at any address
  return port.kind == PortConfig::Kind::kPci ? full_pci_address(port.device) : std::string(device_name(port.device));
}

std::string full_pci_address(std::string_view device) {
  const std::string name(device_name(device));
  return lower(name.size() == 7 ? "0000:" + name : name);
}

std::string device_fault(const PortConfig& port, size_t ip_mtu, unsigned lanes) {
  const std::string_view name = device_name(port.device);
  const size_t frame = ip_mtu + kEthernetHeader;
  switch (port.kind) {
    case PortConfig::Kind::kPci:
      return is_pci_address(name)
                 ? ""
                 : fmt::format("{} is not a PCI address, allowed: as in 0000:03:00.0", quote_text(name));
    case PortConfig::Kind::kRing:
      return "";
    case PortConfig::Kind::kUdp:
      return name == "auto" || name == kAnyWord
                 ? ""
                 : fmt::format("{} is unknown for sockets, allowed: auto, any", quote_text(name));
    case PortConfig::Kind::kDevice:
      break;
  }
  if (is_pci_address(name)) return fmt::format("{} is a PCI address, allowed: key 'pci' for it", quote_text(name));
  if (!is_device(name)) return no_device(name, name.size() == port.device.size());
  if (std::string fault = number_fault(port.device); !fault.empty()) return fault;
  if (is_memif(port)) return memif_fault(port.device, frame);
  if (is_af_packet(port)) {
    return af_packet_fault(port.device, frame, lanes);
  }
  if (is_af_xdp(port)) return spread_fault(port.device, "queue_count", lanes);
  if (is_vhost(port)) return vhost_fault(port.device, lanes);
  if (is_virtio(port)) return virtio_fault(port.device, lanes);
  return "";
}

std::string accelerator_device_fault(const PortConfig& port, size_t ip_mtu) {
  if (port.kind == PortConfig::Kind::kDevice) {
    for (const char* const key : {"qpairs", "queues", "queue_count"}) {
      const size_t queues = number(port.device, key, 1);
      if (queues == 1) continue;
      return fmt::format("{}={}, but an accelerator has one worker; allowed: {}=1, or leave it out", key, queues, key);
    }
    if (is_tap(port) && !devargs_argument(port.device, "iface")) {
      return "its interface needs a name; allowed: iface=NAME";
    }
  }
  return device_fault(port, ip_mtu + kVlanTag, 1);
}

std::string interface_name(const PortConfig& port) {
  if (port.kind != PortConfig::Kind::kDevice) return "";
  static constexpr const char* kDrivers[] = {"net_af_packet", "eth_af_packet",   "net_af_xdp",
                                             "net_tap",       "net_virtio_user", "virtio_user"};
  const std::string_view name = device_name(port.device);
  if (std::ranges::none_of(kDrivers, [&](const char* driver) { return name.starts_with(driver); })) return "";
  return std::string(devargs_argument(port.device, "iface").value_or(""));
}

}  // namespace gradlane
