// hugepages.h - the memory that is free in hugepages (control thread only)
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace gradlane {

// Folders of sysfs; tests use others.
struct HugepageFolders {
  std::string all = "/sys/kernel/mm/hugepages";
  std::string nodes = "/sys/devices/system/node";
};

struct Hugepages {
  int node = -1;  // NUMA node of the pages; -1: the machine has one node
  size_t free_bytes = 0;
  size_t largest = 0;      // bytes of the largest kind of page of which one is free
  size_t small_pages = 0;  // number of 2 MiB pages, free or not
};
// Returns the hugepages from which `bytes` bytes are taken, all on one NUMA node. This is node `wanted` if it has
// enough free ones, otherwise the first node that has. If none has enough, returns the pages of `wanted`, or of the
// first node if `wanted` is negative.
[[nodiscard]] Hugepages hugepages_for(int wanted, size_t bytes, const HugepageFolders& folders = {});

// Returns the NUMA node of the cards with these PCI addresses (and devargs); -1 if there are none, or on several nodes.
[[nodiscard]] int node_of_cards(std::span<const std::string> cards, const std::string& root = "/sys/bus/pci/devices");

// Returns whether `bytes` bytes are free. A part of a page takes a whole page.
[[nodiscard]] bool enough(const Hugepages& pages, size_t bytes) noexcept;
// Returns advice on how to make `bytes` bytes free there.
[[nodiscard]] std::string hugepages_advice(const Hugepages& pages, size_t bytes);
// Returns a description: "0 MiB free on NUMA node 1, 41 MiB needed".
[[nodiscard]] std::string hugepages_text(const Hugepages& pages, size_t bytes);

}  // namespace gradlane
