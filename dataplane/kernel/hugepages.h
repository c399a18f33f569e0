// hugepages.h - how much memory is free in hugepages (control thread only)
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace gradlane {

struct Hugepages {
  size_t free_bytes = 0;
  size_t largest = 0;      // bytes of the largest page that is free
  size_t small_pages = 0;  // all of 2 MiB, free or not
};
// `root`: another one in tests.
[[nodiscard]] Hugepages look_at_hugepages(const std::string& root = "/sys/kernel/mm/hugepages");

// NUMA node of the cards with these PCI addresses (and devargs); -1: there are none, or at several nodes.
[[nodiscard]] int node_of_cards(std::span<const std::string> cards, const std::string& root = "/sys/bus/pci/devices");
// Which node so many bytes can come from: `wanted` if they are free there, else the first where they are; else 0.
[[nodiscard]] size_t node_with_hugepages(int wanted, size_t bytes,
                                         const std::string& root = "/sys/devices/system/node");

// A part of a page is a page.
[[nodiscard]] bool enough(const Hugepages& pages, size_t bytes) noexcept;
// How to have so many bytes.
[[nodiscard]] std::string hugepages_advice(const Hugepages& pages, size_t bytes);
// "0 MiB free, 41 MiB needed".
[[nodiscard]] std::string hugepages_text(const Hugepages& pages, size_t bytes);

}  // namespace gradlane
