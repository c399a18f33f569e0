// nic.h - network devices on the PCI bus, as sysfs shows them (main thread only)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/nic/host.h"

namespace gradlane {

inline constexpr const char* kVfio = "vfio-pci";

struct Nic {
  std::string address;                  // 0000:03:00.0
  std::string ids;                      // 8086:10d3, vendor and device
  std::string serial;                   // PCI serial number in hexadecimal; empty: none, or the user is not root
  bool is_network = false;              // PCI class 02, a network controller
  std::string driver;                   // kernel driver; empty: none
  std::vector<std::string> interfaces;  // names of the kernel's interfaces on it
  int node = -1;                        // NUMA node; -1: the machine has one
  std::string group;                    // number of its IOMMU group; empty: none
  std::vector<std::string> companions;  // addresses of the other devices in that group
  uint64_t functions = 0;               // virtual functions (SR-IOV) that are in use

  // Returns whether DPDK uses the NIC beside its kernel driver, so that nothing is bound.
  [[nodiscard]] bool is_bifurcated() const;
  [[nodiscard]] bool is_virtio() const { return ids.starts_with("1af4:"); }
};

[[nodiscard]] std::string device_folder(const std::string& address);

// Returns nothing if there is no such device. `address` has the domain, in lower case.
[[nodiscard]] std::optional<Nic> read_nic(const Host& host, const std::string& address);
// Returns all network devices, sorted by address.
[[nodiscard]] std::vector<Nic> all_nics(const Host& host);

// Names of devices, from the file of Debian's package pci.ids.
class DeviceNames {
 public:
  explicit DeviceNames(const Host& host);
  // Returns "Intel Corporation 82574L Gigabit Network Connection" for "8086:10d3"; "" if it is not known.
  [[nodiscard]] std::string of(const std::string& ids) const;

 private:
  std::string table_;
};

}  // namespace gradlane
