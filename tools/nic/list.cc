// list.cc - the table of `gradlane nic list` (main thread only)
#include "tools/nic/list.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tools/nic/nic.h"
#include "tools/nic/state.h"

namespace gradlane {
namespace {

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

nlohmann::ordered_json json_of(const Nic& nic, const std::string& name, const std::string& instance) {
  nlohmann::ordered_json json = {{"pci", nic.address}, {"ids", nic.ids}, {"name", name}};
  json["driver"] = printable(nic.driver);
  json["interfaces"] = nlohmann::json::array();
  for (const std::string& interface : nic.interfaces) json["interfaces"].push_back(printable(interface));
  json["numa_node"] = nic.node;
  json["iommu_group"] = nic.group;
  json["instance"] = instance;  // empty: not set up
  return json;
}

}  // namespace

void list_nics(const Host& host, bool json) {
  const std::vector<Nic> nics = all_nics(host);
  const std::vector<NicState> states = all_states(host);
  const DeviceNames names(host);
  nlohmann::ordered_json all = nlohmann::json::array();
  if (!json && nics.empty()) fmt::print("no network devices on the PCI bus\n");
  if (!json && !nics.empty()) {
    fmt::print("{:12}  {:9}  {:11}  {:11}  {:>4}  {:>5}  {:10}  {}\n", "PCI", "ID", "DRIVER", "INTERFACE", "NUMA",
               "IOMMU", "SET UP FOR", "NAME");
  }
  for (const Nic& nic : nics) {
    std::string instance;
    for (const NicState& state : states) {
      if (state.pci == nic.address) instance = state.instance;
    }
    if (json) {
      all.push_back(json_of(nic, names.of(nic.ids), instance));
      continue;
    }
    const std::string interfaces = printable(fmt::format("{}", fmt::join(nic.interfaces, ",")));
    fmt::print("{:12}  {:9}  {:11}  {:11}  {:>4}  {:>5}  {:10}  {}\n", nic.address, nic.ids,
               or_dash(printable(nic.driver)), or_dash(interfaces), nic.node < 0 ? "-" : std::to_string(nic.node),
               or_dash(nic.group), or_dash(instance), or_dash(names.of(nic.ids)));
  }
  if (json) fmt::print("{}\n", all.dump(2));
}

}  // namespace gradlane
