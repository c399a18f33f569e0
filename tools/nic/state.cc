// state.cc - what `gradlane nic setup` has done with a NIC, as a JSON file (main thread only)
#include "tools/nic/state.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "config/devices.h"
#include "tools/admin/bounded_json.h"

namespace gradlane {
namespace {

constexpr const char* kFolder = "/var/lib/gradlane/nic";
constexpr size_t kLargestFile = 65'536;

bool is_empty_or_plain(const std::string& text) { return text.empty() || is_plain_name(text); }

}  // namespace

std::string state_file(const std::string& pci) { return fmt::format("{}/{}.json", kFolder, pci); }

std::optional<NicState> load_state(const Host& host, const std::string& pci) {
  const std::string path = state_file(pci);
  if (!host.has(path)) return std::nullopt;
  NicState state;
  try {
    const nlohmann::json json = parse_bounded(host.text(path, kLargestFile));
    state.pci = pci;
    json.at("ids").get_to(state.ids);
    json.at("serial").get_to(state.serial);
    json.at("driver").get_to(state.driver);
    json.at("numa_node").get_to(state.node);
    json.at("hugepages").get_to(state.hugepages);
    json.at("boot").get_to(state.boot);
    json.at("instance").get_to(state.instance);
    json.at("user").get_to(state.user);
    json.at("no_iommu").get_to(state.no_iommu);
    json.at("force").get_to(state.force);
    if (json.at("pci") == pci && is_empty_or_plain(state.serial) && is_empty_or_plain(state.driver) &&
        is_plain_name(state.instance) && is_plain_name(state.user)) {
      return state;
    }
  } catch (const nlohmann::json::exception&) {
  }
  throw SetupError(fmt::format(
      "{} is damaged, so nobody knows what the set-up of {} changed: remove it, and the files that `find /etc -name "
      "'*{}*'` finds; then bind the NIC to its kernel driver by hand (docs/nic.md)",
      host.path(path), pci, pci));
}

std::vector<NicState> all_states(const Host& host) {
  std::vector<NicState> states;
  for (const std::string& name : host.names(kFolder)) {
    const std::string pci = name.substr(0, name.rfind(".json"));
    if (!is_pci_address(pci) || !host.has(state_file(pci))) continue;
    try {
      states.push_back(*load_state(host, pci));
    } catch (const SetupError&) {
    }
  }
  return states;
}

void save_state(const Host& host, const NicState& state) {
  const nlohmann::ordered_json json = {
      {"pci", state.pci},           {"ids", state.ids},           {"serial", state.serial},
      {"driver", state.driver},     {"numa_node", state.node},    {"hugepages", state.hugepages},
      {"boot", state.boot},         {"instance", state.instance}, {"user", state.user},
      {"no_iommu", state.no_iommu}, {"force", state.force}};
  host.write_file(state_file(state.pci), json.dump(2) + "\n");
}

}  // namespace gradlane
