// pci_card.h - what keeps a port from a PCI card, as Linux shows it (control thread only)
#pragma once

#include <optional>
#include <string>

namespace gradlane {

// Others in tests.
struct KernelFolders {
  std::string sys = "/sys";
  std::string dev = "/dev";
  std::string proc = "/proc";
};

struct PciCard {
  std::string address;    // 0000:03:00.0
  std::string ids;        // 8086:10d3, vendor and device; empty: there is no such card
  std::string driver;     // whose it is; empty: nobody's
  std::string interface;  // which the kernel has made of it; empty: none
  std::string group;      // number of its IOMMU group; empty: none
};
// `address`: with its domain, in lower case.
[[nodiscard]] PciCard look_at_card(const std::string& address, const KernelFolders& folders = {});

[[nodiscard]] bool card_there(const std::string& address, const KernelFolders& folders = {}) noexcept;

struct CardTrouble {
  std::string what;
  std::string advice;
};
// Why DPDK cannot have it; nothing: as far as the kernel is concerned, it can.
[[nodiscard]] std::optional<CardTrouble> trouble_with(const PciCard& card, const KernelFolders& folders = {});

// Another process that has this file open: "gradlaned, pid 123"; empty: none that can be seen.
[[nodiscard]] std::string who_has(const std::string& file, const KernelFolders& folders = {});

}  // namespace gradlane
