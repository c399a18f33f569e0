// nic.cc - network devices on the PCI bus, as sysfs shows them (main thread only)
#include "tools/nic/nic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "base/parse.h"
#include "config/devices.h"

namespace gradlane {
namespace {

constexpr const char* kDevices = "/sys/bus/pci/devices";
constexpr size_t kLargestIdsFile = size_t{16} << 20;  // pci.ids has 1.4 MB

// Returns a hexadecimal attribute without 0x: "8086" for "0x8086"; "????" if it is something else.
std::string id_in_file(const Host& host, const std::string& path) {
  const std::string text = host.line(path);
  return text.size() == 6 && text.starts_with("0x") && parse_hex(std::string_view(text).substr(2)) ? text.substr(2)
                                                                                                   : "????";
}

// Returns the PCI Express capability "device serial number", which most NICs make of their MAC address.
std::string serial_of(const Host& host, const std::string& folder) {
  constexpr size_t kFirst = 0x100;
  constexpr uint32_t kSerialNumber = 3;
  const std::string config = host.text(folder + "/config", 4096);
  const auto word = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<uint8_t>(config[at + i]);
    return value;
  };
  size_t at = kFirst;
  for (size_t tries = 0; at >= kFirst && at + 12 <= config.size() && tries < config.size() / 4; ++tries) {
    if ((word(at) & 0xffff) == kSerialNumber) return fmt::format("{:08x}{:08x}", word(at + 8), word(at + 4));
    at = word(at) >> 20;
  }
  return "";
}

std::vector<std::string> interfaces_of(const Host& host, const std::string& folder) {
  std::vector<std::string> found = host.names(folder + "/net");
  for (const std::string& name : host.names(folder)) {
    if (!name.starts_with("virtio")) continue;  // the interfaces of virtio devices are one folder further down
    for (const std::string& interface : host.names(folder + "/" + name + "/net")) found.push_back(interface);
  }
  return found;
}

// Returns the name in a line of pci.ids that begins with this id: "Intel Corporation" for "8086  Intel Corporation".
// Only lines of `table` with that number of tabs count; the search ends at a line with fewer.
std::string_view name_in(std::string_view table, size_t tabs, std::string_view id, std::string_view& behind) {
  while (!table.empty()) {
    const size_t end = std::min(table.find('\n'), table.size());
    std::string_view line = table.substr(0, end);
    table.remove_prefix(std::min(end + 1, table.size()));
    const size_t depth = std::min(line.find_first_not_of('\t'), line.size());
    if (depth < tabs && !line.empty() && line.front() != '#') return {};
    if (depth != tabs) continue;
    line.remove_prefix(depth);
    if (!line.starts_with(id) || !line.substr(id.size()).starts_with("  ")) continue;
    behind = table;
    return line.substr(id.size() + 2);
  }
  return {};
}

}  // namespace

bool Nic::is_bifurcated() const {
  constexpr std::array kDrivers = {"mlx4_core", "mlx5_core", "mana"};
  return std::ranges::find(kDrivers, driver) != kDrivers.end();
}

std::string device_folder(const std::string& address) { return std::string(kDevices) + "/" + address; }

std::optional<Nic> read_nic(const Host& host, const std::string& address) {
  const std::string folder = device_folder(address);
  if (!host.has(folder)) return std::nullopt;
  Nic nic;
  nic.address = address;
  nic.ids = id_in_file(host, folder + "/vendor") + ":" + id_in_file(host, folder + "/device");
  nic.serial = serial_of(host, folder);
  nic.is_network = host.line(folder + "/class").starts_with("0x02");
  nic.driver = host.link(folder + "/driver");
  nic.interfaces = interfaces_of(host, folder);
  if (const auto node = parse_decimal(host.line(folder + "/numa_node"), 0, 4095)) nic.node = static_cast<int>(*node);
  if (const std::string group = host.link(folder + "/iommu_group"); parse_decimal(group)) nic.group = group;
  for (const std::string& other : host.names(folder + "/iommu_group/devices")) {
    if (other != address && is_pci_address(other)) nic.companions.push_back(other);
  }
  nic.functions = host.number(folder + "/sriov_numvfs").value_or(0);
  return nic;
}

std::vector<Nic> all_nics(const Host& host) {
  std::vector<Nic> found;
  for (const std::string& address : host.names(kDevices)) {
    if (!is_pci_address(address)) continue;
    if (auto nic = read_nic(host, address); nic && nic->is_network) found.push_back(std::move(*nic));
  }
  return found;
}

DeviceNames::DeviceNames(const Host& host) : table_(host.text("/usr/share/misc/pci.ids", kLargestIdsFile)) {}

std::string DeviceNames::of(const std::string& ids) const {
  std::string_view devices;
  const std::string_view vendor = name_in(table_, 0, std::string_view(ids).substr(0, 4), devices);
  if (vendor.empty()) return "";
  std::string_view rest;
  const std::string_view device = name_in(devices, 1, std::string_view(ids).substr(5), rest);
  return printable(std::string(vendor) + (device.empty() ? "" : " ") + std::string(device));
}

}  // namespace gradlane
