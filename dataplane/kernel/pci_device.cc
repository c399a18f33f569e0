// pci_device.cc - cards in sysfs, VFIO groups, and the processes that use them (control thread only)
#include "dataplane/kernel/pci_device.h"

#include <fcntl.h>
#include <pwd.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/file_descriptor.h"
#include "base/parse.h"

namespace gradlane {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIommuAdvice =
    "switch the IOMMU on: VT-d or AMD-Vi in the firmware, intel_iommu=on iommu=pt for the kernel (docs/nic.md)";

std::string device_folder(const std::string& address, const KernelFolders& folders) {
  return folders.sys + "/bus/pci/devices/" + address;
}

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the last part of a symbolic link's target; empty: there is no link.
std::string link_name(const std::string& path) {
  std::error_code none;
  return fs::read_symlink(path, none).filename().string();
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code none;  // processes and devices may disappear meanwhile
  for (fs::directory_iterator it(folder, none); !none && it != fs::directory_iterator(); it.increment(none)) {
    names.push_back(it->path().filename().string());
  }
  return names;
}

// Returns the id in a file without the prefix 0x: "8086" for "0x8086".
std::string id_in(const std::string& path) {
  const std::string text = first_line_of(path);
  return text.starts_with("0x") ? text.substr(2) : text;
}

// Returns whether a device with this driver may stay in a group that VFIO gives to a process. These drivers do no DMA
// by themselves.
bool may_stay(const std::string& driver) {
  return driver.empty() || driver == "vfio-pci" || driver == "pcieport" || driver == "pci-stub";
}

// Returns another card of the same group that the kernel uses: "0000:03:00.1 (driver e1000e)"; empty: there is none.
std::string other_in_group(const PciDevice& card, const KernelFolders& folders) {
  for (const std::string& address : names_in(device_folder(card.address, folders) + "/iommu_group/devices")) {
    const std::string driver = link_name(device_folder(address, folders) + "/driver");
    if (address != card.address && !may_stay(driver)) return fmt::format("{} (driver {})", address, driver);
  }
  return "";
}

std::string own_name() {
  const passwd* const entry = getpwuid(geteuid());
  return entry != nullptr ? entry->pw_name : std::to_string(geteuid());
}

// Returns whether VFIO is configured to work without an IOMMU. Then cards have no group before they are bound.
bool without_iommu(const KernelFolders& folders) {
  return first_line_of(folders.sys + "/module/vfio/parameters/enable_unsafe_noiommu_mode") == "Y";
}

NicProblem not_bound(const PciDevice& card, const KernelFolders& folders) {
  std::string what = "it has no driver";
  const bool no_iommu = card.group.empty() && without_iommu(folders);
  std::string advice = fmt::format("as root: gradlane nic setup {}{}", card.address, no_iommu ? " --no-iommu" : "");
  if (!card.driver.empty()) what = fmt::format("the kernel uses it with driver {}", card.driver);
  if (!card.interface.empty()) {
    what += ", as interface " + card.interface;
    advice += "; this removes the interface: do not use the one that your login session needs";
  }
  if (card.group.empty() && !no_iommu) {
    what += ", and it is in no IOMMU group, which vfio-pci needs";
    advice = std::string(kIommuAdvice) + "; then " + advice;
  }
  return {what, advice};
}

bool has_open(const std::string& process, const std::string& file) {
  std::error_code none;
  for (const std::string& name : names_in(process + "/fd")) {
    if (fs::read_symlink(process + "/fd/" + name, none) == file) return true;
  }
  return false;
}

// Returns why the card's group cannot be opened, or nothing. VFIO gives a group to one process at a time.
std::optional<NicProblem> group_trouble(const PciDevice& card, const KernelFolders& folders) {
  std::error_code none;
  std::string file = folders.dev + "/vfio/" + card.group;
  const bool open_to_all_memory =
      !fs::exists(file, none) && fs::exists(folders.dev + "/vfio/noiommu-" + card.group, none);
  if (open_to_all_memory) file = folders.dev + "/vfio/noiommu-" + card.group;
  if (!fs::exists(file, none)) {
    return NicProblem{fmt::format("there is no {}", file),
                      fmt::format("is this a container? Start it with --device /dev/vfio/vfio --device {}", file)};
  }
  const FileDescriptor opened(open(file.c_str(), O_RDWR | O_CLOEXEC));
  const int error = opened ? 0 : errno;
  if (error == EBUSY) {
    if (has_open(folders.proc + "/self", file)) return std::nullopt;
    const std::string owner = who_has(file, folders);
    return NicProblem{fmt::format("{} is in use by {}", file, owner.empty() ? "another process" : owner),
                      "only one process can use a card: end that process, or set another card for this port"};
  }
  // the kernel requires CAP_SYS_RAWIO, so chown does not help
  if ((error == EACCES || error == EPERM) && open_to_all_memory) {
    return NicProblem{
        fmt::format("{} cannot be opened by user {}: without an IOMMU only root can open it", file, own_name()),
        fmt::format("start as root, with `user`; or {}", kIommuAdvice)};
  }
  if (error == EACCES || error == EPERM) {
    return NicProblem{fmt::format("{} cannot be opened by user {}", file, own_name()),
                      fmt::format("as root: chown {} {}; or start as root, with `user`", own_name(), file)};
  }
  if (error != 0) return NicProblem{fmt::format("{}: {}", file, std::strerror(error)), "docs/nic.md has all steps"};
  return std::nullopt;
}

}  // namespace

PciDevice look_at_card(const std::string& address, const KernelFolders& folders) {
  PciDevice card;
  card.address = address;
  const std::string folder = device_folder(address, folders);
  std::error_code none;
  if (!fs::exists(folder, none)) return card;
  card.ids = id_in(folder + "/vendor") + ":" + id_in(folder + "/device");
  card.driver = link_name(folder + "/driver");
  card.group = link_name(folder + "/iommu_group");
  for (const std::string& name : names_in(folder)) {
    // The interfaces of virtio cards are one folder further down.
    const std::string net = folder + (name.starts_with("virtio") ? "/" + name : "") + "/net";
    for (const std::string& interface : names_in(net)) card.interface = interface;
  }
  return card;
}

bool card_there(const std::string& address, const KernelFolders& folders) noexcept {
  return access(device_folder(address, folders).c_str(), F_OK) == 0;
}

std::optional<NicProblem> problem_with(const PciDevice& card, const KernelFolders& folders) {
  if (card.ids.empty()) return NicProblem{"there is no such PCI device", "`lspci -D` lists all devices"};
  if (card.driver.starts_with("mlx") || card.driver.starts_with("uio") || card.driver == "igb_uio") return std::nullopt;
  if (card.driver != "vfio-pci") return not_bound(card, folders);
  if (card.group.empty()) return NicProblem{"it is in no IOMMU group", kIommuAdvice};
  const std::string other = other_in_group(card, folders);
  if (!other.empty()) {
    const std::string address = other.substr(0, other.find(' '));
    const std::string kind = first_line_of(device_folder(address, folders) + "/class");
    const bool is_nic = kind.empty() || kind.starts_with("0x02");
    return NicProblem{
        fmt::format("IOMMU group {} also has {}, which the kernel uses", card.group, other),
        fmt::format("{}, or put the card into another slot",
                    is_nic ? fmt::format("set up all devices of the group, as root: gradlane nic setup {} {}",
                                         card.address, address)
                           : fmt::format("bind {} to vfio-pci too", address))};
  }
  return group_trouble(card, folders);
}

std::string who_has(const std::string& file, const KernelFolders& folders) {
  for (const std::string& pid : names_in(folders.proc)) {
    const std::string process = folders.proc + "/" + pid;
    if (!parse_decimal(pid) || pid == std::to_string(getpid()) || !has_open(process, file)) continue;
    return fmt::format("{}, pid {}", first_line_of(process + "/comm"), pid);
  }
  return "";
}

}  // namespace gradlane
