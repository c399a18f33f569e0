// no_device.cc - the error for a card or virtual device that DPDK cannot make (control thread only)
#include "dataplane/device/no_device.h"

#include <spdlog/fmt/fmt.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "config/devices.h"
#include "dataplane/device/drivers.h"
#include "dataplane/kernel/pci_device.h"

namespace gradlane {
namespace {

// Longest arguments of a device that rte_dev_probe() of DPDK 24.11 takes. DPDK 22.11 has no limit.
constexpr size_t kMaxDevice = 127;

// Returns advice about the limit on locked memory, or "" if there is no limit. All memory that a card may access is
// locked. Users other than root may lock only a part of the memory.
std::string lock_advice() {
  rlimit limit{};
  if (geteuid() == 0 || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format("; packet buffers need locked memory, and its limit is {} KiB (ulimit -l)", limit.rlim_cur / 1024);
}

std::string why_no_card(const PortConfig& config, int result) {
  const PciDevice card = look_at_card(device_key(config));
  const std::string what = "PCI device " + card.address;
  if (const auto trouble = problem_with(card)) return fmt::format("{}: {}; {}", what, trouble->what, trouble->advice);
  if (!driver_loaded("bus_pci")) return fmt::format("{}: {}", what, missing_driver("bus_pci"));
  const std::string driver = driver_of_card(card.ids);
  if (!driver.empty() && !driver_loaded(driver)) {
    return fmt::format("{} ({}): {}", what, card.ids, missing_driver(driver));
  }
  if (result == -ENOTSUP) return fmt::format("{} ({}): no driver knows this card; {}", what, card.ids, all_drivers());
  return fmt::format("{} ({}): its driver cannot start it; see DPDK's messages above{}", what, card.ids, lock_advice());
}

std::string why_no_virtual_device(const PortConfig& config) {
  const std::string driver = driver_of_device(config.device);
  std::string text = fmt::format("DPDK has no device '{}'; ", config.device);
  if (!driver.empty() && !driver_loaded(driver)) return text + missing_driver(driver);
  text += "see its messages above";
  const size_t length = config.device.size();
  if (length <= kMaxDevice) return text;
  return fmt::format("{} (DPDK 24.11 takes at most {} characters, and these are {})", text, kMaxDevice, length);
}

}  // namespace

SetupError no_device(const PortConfig& config, int result) {
  return SetupError(config.kind == PortConfig::Kind::kPci ? why_no_card(config, result)
                                                          : why_no_virtual_device(config));
}

}  // namespace gradlane
