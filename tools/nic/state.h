// state.h - what `gradlane nic setup` has done with a NIC, in a file, so that `undo` can restore it (main thread only)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/nic/host.h"

namespace gradlane {

struct NicState {
  std::string pci;
  std::string ids;         // vendor and device; another device at this address is not the same NIC
  std::string serial;      // of the NIC, which tells it from others of its kind; empty: not known
  std::string driver;      // driver before set-up; empty: none, or vfio-pci already
  int node = -1;           // NUMA node of the hugepages
  uint64_t hugepages = 0;  // number of 2 MiB pages to add
  std::string boot;        // id of the boot in which they were added; empty: they were not
  std::string instance;    // of gradlaned@.service
  std::string user;        // may open the NIC
  bool no_iommu = false;
  bool force = false;
};

// Returns nothing if the NIC was not set up. Throws SetupError if the file is damaged.
[[nodiscard]] std::optional<NicState> load_state(const Host& host, const std::string& pci);
[[nodiscard]] std::vector<NicState> all_states(const Host& host);  // skips damaged files
void save_state(const Host& host, const NicState& state);
[[nodiscard]] std::string state_file(const std::string& pci);

}  // namespace gradlane
