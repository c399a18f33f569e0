// pci_device.h - the reasons why a port cannot use a PCI card, as Linux shows them (control thread only)
#pragma once

#include <optional>
#include <string>

namespace gradlane {

// Folders of the kernel; tests use others.
struct KernelFolders {
  std::string sys = "/sys";
  std::string dev = "/dev";
  std::string proc = "/proc";
};

struct PciDevice {
  std::string address;    // 0000:03:00.0
  std::string ids;        // 8086:10d3, vendor and device; empty: there is no such card
  std::string driver;     // kernel driver of the card; empty: none
  std::string interface;  // network interface that the kernel has made of it; empty: none
  std::string group;      // number of its IOMMU group; empty: none
};
// Returns the state of a card. `address` has the domain and is in lower case.
[[nodiscard]] PciDevice look_at_card(const std::string& address, const KernelFolders& folders = {});

[[nodiscard]] bool card_there(const std::string& address, const KernelFolders& folders = {}) noexcept;

struct NicProblem {
  std::string what;
  std::string advice;
};
// Returns why DPDK cannot use the card, or nothing if the kernel does not prevent it.
[[nodiscard]] std::optional<NicProblem> problem_with(const PciDevice& card, const KernelFolders& folders = {});

// Returns another process that has this file open: "gradlaned, pid 123". Empty if no such process is visible.
[[nodiscard]] std::string who_has(const std::string& file, const KernelFolders& folders = {});

}  // namespace gradlane
