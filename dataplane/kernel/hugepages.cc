// hugepages.cc - hugepages in sysfs (control thread only)
#include "dataplane/kernel/hugepages.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/parse.h"
#include "config/devices.h"

namespace gradlane {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;
constexpr size_t kSmallKib = 2048;

std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

size_t number_in(const std::string& path) { return parse_decimal(line_of(path)).value_or(0); }

int node_of_card(std::string_view card, const std::string& root) {
  // the file has -1 for no node
  const auto node = parse_decimal(line_of(root + "/" + full_pci_address(card) + "/numa_node"));
  return node ? static_cast<int>(*node) : -1;
}

size_t up(size_t bytes, size_t unit) noexcept { return (bytes + unit - 1) / unit; }

Hugepages look_at(const std::string& root, int node) {
  Hugepages all;
  all.node = node;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(root, none)) {
    const std::string name = entry.path().filename().string();
    std::string_view behind_dash = std::string_view(name).substr(name.find('-') + 1);  // hugepages-2048kB
    const size_t kib = take_decimal(behind_dash).value_or(0);
    const size_t free = number_in(entry.path().string() + "/free_hugepages");
    all.free_bytes += kib * 1024 * free;
    if (free != 0) all.largest = std::max(all.largest, kib * 1024);
    if (kib == kSmallKib) all.small_pages = number_in(entry.path().string() + "/nr_hugepages");
  }
  return all;
}

std::string folder_of_node(const std::string& root, int node) { return root + "/node" + std::to_string(node); }

// Returns the numbers of the nodes in a folder, sorted. They may have gaps.
std::vector<int> nodes_in(const std::string& root) {
  std::vector<int> nodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
    const std::string name = entry.path().filename();
    const auto number =
        name.starts_with("node") ? parse_decimal(std::string_view(name).substr(4), 0, 4096) : std::nullopt;
    if (number) nodes.push_back(static_cast<int>(*number));
  }
  std::ranges::sort(nodes);
  return nodes;
}

}  // namespace

int node_of_cards(std::span<const std::string> cards, const std::string& root) {
  if (cards.empty()) return -1;
  const int node = node_of_card(cards.front(), root);
  return std::ranges::all_of(cards, [&](const std::string& card) { return node_of_card(card, root) == node; }) ? node
                                                                                                               : -1;
}

Hugepages hugepages_for(int wanted, size_t bytes, const HugepageFolders& folders) {
  const auto of = [&](int node) { return look_at(folder_of_node(folders.nodes, node) + "/hugepages", node); };
  const std::vector<int> nodes = nodes_in(folders.nodes);
  if (nodes.size() < 2) return look_at(folders.all, -1);
  const Hugepages best = of(wanted < 0 ? nodes.front() : wanted);
  if (enough(best, bytes)) return best;
  for (const int node : nodes) {
    if (const Hugepages pages = of(node); enough(pages, bytes)) return pages;
  }
  return best;
}

bool enough(const Hugepages& pages, size_t bytes) noexcept {
  return pages.free_bytes >= bytes && pages.free_bytes >= pages.largest;
}

std::string hugepages_advice(const Hugepages& pages, size_t bytes) {
  const size_t missing = bytes - std::min(bytes, pages.free_bytes);
  const HugepageFolders folders;
  return fmt::format(
      "as root: gradlane nic setup --hugepages {} PCI, or echo {} > "
      "{}/hugepages-2048kB/nr_hugepages, or memory: {{hugepages: false}}",
      up(bytes, kSmallKib * 1024), pages.small_pages + up(missing, kSmallKib * 1024),
      pages.node < 0 ? folders.all : folder_of_node(folders.nodes, pages.node) + "/hugepages");
}

std::string hugepages_text(const Hugepages& pages, size_t bytes) {
  return fmt::format("{} MiB free{}, {} MiB needed", pages.free_bytes / kMebibyte,
                     pages.node < 0 ? "" : fmt::format(" on NUMA node {}", pages.node), up(bytes, kMebibyte));
}

}  // namespace gradlane
