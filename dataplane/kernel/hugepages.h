// hugepages.h - how much memory is free in hugepages (control thread only)
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace gradlane {

// Others in tests.
struct HugepageFolders {
  std::string all = "/sys/kernel/mm/hugepages";
  std::string nodes = "/sys/devices/system/node";
};

struct Hugepages {
  int node = -1;  // NUMA node that they are of; -1: the machine has one
  size_t free_bytes = 0;
  size_t largest = 0;      // bytes of the largest page that is free
  size_t small_pages = 0;  // all of 2 MiB, free or not
};
// Those that so many bytes are taken from, which have to be of one NUMA node: `wanted` if that has as many free, else
// the first that has. None has: those of `wanted`, or of the first.
[[nodiscard]] Hugepages hugepages_for(int wanted, size_t bytes, const HugepageFolders& folders = {});

// NUMA node of the cards with these PCI addresses (and devargs); -1: there are none, or at several nodes.
[[nodiscard]] int node_of_cards(std::span<const std::string> cards, const std::string& root = "/sys/bus/pci/devices");

// A part of a page is a page.
[[nodiscard]] bool enough(const Hugepages& pages, size_t bytes) noexcept;
// How to have so many bytes there.
[[nodiscard]] std::string hugepages_advice(const Hugepages& pages, size_t bytes);
// "0 MiB free on NUMA node 1, 41 MiB needed".
[[nodiscard]] std::string hugepages_text(const Hugepages& pages, size_t bytes);

}  // namespace gradlane
