// service_files.h - files of systemd and udev that keep a NIC set up (pure)
#pragma once

#include <string>
#include <vector>

#include "tools/nic/state.h"

namespace gradlane {

struct ServiceFile {
  std::string path;
  std::string text;  // content; target if it is a link
  std::string what;  // for whom it is, and what it does
  bool is_link = false;
};

// Returns the files for a NIC. `program` is the path of gradlane. Without an IOMMU only root can open the NIC, so there
// are no files for the user and for the service.
[[nodiscard]] std::vector<ServiceFile> service_files(const NicState& state, const std::string& program);

// Returns the name of the unit that sets the NIC up at each boot.
[[nodiscard]] std::string unit_name(const std::string& pci);

}  // namespace gradlane
