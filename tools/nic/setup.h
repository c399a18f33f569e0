// setup.h - `gradlane nic setup` and `undo`: a NIC goes to DPDK, and back to the kernel (main thread only)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gradlane {

struct NicOptions {
  enum class Command : uint8_t { kNone, kList, kSetup, kUndo };
  Command command = Command::kNone;

  std::vector<std::string> nics;  // PCI addresses
  // Without a value, an earlier set-up decides, or else a default.
  std::optional<std::string> instance;
  std::optional<std::string> user;
  std::optional<uint64_t> hugepages;
  bool no_iommu = false;
  bool force = false;
  bool dry_run = false;
  bool json = false;
  std::string root;  // folder in place of "/", for tests
};

// Runs the command. Throws SetupError if it fails. Returns the exit status.
[[nodiscard]] int run_nic(const NicOptions& options);

}  // namespace gradlane
