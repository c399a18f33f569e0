// host.cc - what a daemon needs of its machine: files, hugepages, rights (main thread only)
#include "tools/check/host.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/parse.h"
#include "config/devargs.h"
#include "dataplane/device/port_kinds.h"
#include "dataplane/kernel/kernel_interface.h"
#include "dataplane/node/key_file.h"

namespace gradlane {
namespace {

namespace fs = std::filesystem;

constexpr size_t kEalBytes = size_t{16} << 20;  // for DPDK itself

uint64_t number_in(const std::string& path) { return parse_decimal(first_line(path)).value_or(0); }

bool has_capability(unsigned number) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("CapEff:")) continue;
    return (std::stoull(line.substr(7), nullptr, 16) >> number & 1) != 0;
  }
  return false;
}

void check_kernel_port(const PortConfig& port, CheckReport& report) {
  const std::string what = fmt::format("permissions for port {}", port.name);
  // Root in a container may be without.
  if (has_capability(CAP_NET_RAW) && has_capability(CAP_NET_ADMIN)) return report.ok(what);
  report.fail(what, "raw packets of an interface need root, or CAP_NET_RAW and CAP_NET_ADMIN",
              "run with sudo, or: setcap cap_net_raw,cap_net_admin+ep $(which gradlaned)");
}

void check_tap_port(const PortConfig& port, CheckReport& report) {
  const std::string what = fmt::format("permissions for port {}", port.name);
  if (has_capability(CAP_NET_ADMIN) && access("/dev/net/tun", R_OK | W_OK) == 0) return report.ok(what);
  report.fail(what, "making an interface needs root, or CAP_NET_ADMIN and /dev/net/tun", "run with sudo");
}

void check_pci_port(const PortConfig& port, CheckReport& report) {
  const std::string address = pci_address(port);
  const std::string device = "/sys/bus/pci/devices/" + address;
  const std::string what = fmt::format("PCI device {} of port {}", address, port.name);
  std::error_code fault;
  if (!fs::exists(device, fault)) return report.fail(what, "no such device", "`lspci -D` lists what there is");
  const std::string driver = fs::read_symlink(device + "/driver", fault).filename().string();
  if (driver.starts_with("mlx")) return report.ok(fmt::format("{}, driver {}", what, driver));
  if (driver != "vfio-pci" && !driver.starts_with("uio") && driver != "igb_uio") {
    return report.fail(what,
                       driver.empty() ? "it has no driver" : fmt::format("it is the kernel's, by driver {}", driver),
                       fmt::format("bind it: dpdk-devbind.py --bind=vfio-pci {}", address));
  }
  report.ok(fmt::format("{}, driver {}", what, driver));
  if (driver != "vfio-pci") return;
  const std::string group = fs::read_symlink(device + "/iommu_group", fault).filename().string();
  const std::string file = "/dev/vfio/" + (group.empty() ? "vfio" : group);
  if (access(file.c_str(), R_OK | W_OK) == 0)
    return report.ok(fmt::format("permissions for port {}: {}", port.name, file));
  report.fail(fmt::format("permissions for port {}", port.name), fmt::format("{} cannot be opened", file),
              "run as root, or give the file to this user");
}

}  // namespace

void check_user(const std::string& user, CheckReport& report) {
  if (user.empty()) return;
  const std::string what = fmt::format("user '{}'", user);
  getpwnam(user.c_str()) != nullptr ? report.ok(what)
                                    : report.fail(what, "there is no such user", "make it, or remove `user`");
}

void check_folder(const char* key, const std::string& socket, CheckReport& report) {
  const size_t slash = socket.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : socket.substr(0, slash);
  const std::string what = fmt::format("folder of `{}` {}", key, folder);
  std::error_code ignored;
  if (fs::exists(folder, ignored)) {
    if (access(folder.c_str(), W_OK | X_OK) == 0) return report.ok(what + " can be written to");
    return report.fail(what, "no permission to make a socket there",
                       "run as its owner or as root, or set `socket` to a path of yours");
  }
  const fs::path parent = fs::path(folder).parent_path().empty() ? "." : fs::path(folder).parent_path();
  if (access(parent.c_str(), W_OK | X_OK) == 0) return report.ok(what + " can be made");
  report.fail(what, fmt::format("it is not there, and cannot be made in {}", parent.string()),
              "make it, run as root, or set `socket` to a path of yours");
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string interface_of(const PortConfig& port) {
  return is_af_packet(port) || is_af_xdp(port) ? devargs_value(port.device, "iface") : "";
}

std::string pci_address(const PortConfig& port) {
  if (port.kind != PortConfig::Kind::kPci) return "";
  const std::string address = port.device.substr(0, port.device.find(','));
  return std::ranges::count(address, ':') == 1 ? "0000:" + address : address;
}

void check_files(const NodeConfig& config, CheckReport& report) {
  check_user(config.user, report);
  if (config.key_file.empty()) return;
  const std::string what = fmt::format("key file {}", config.key_file);
  try {
    (void)read_key_file(config.key_file);
    report.ok(what);
  } catch (const SetupError& error) {
    report.fail(what, error.what(), "docs/security.md says how to make it");
  }
}

void check_hugepages(size_t need, CheckReport& report) {
  if (need == 0) return report.ok("hugepages: not used");
  need += kEalBytes;
  size_t free = 0;
  size_t largest = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/sys/kernel/mm/hugepages", ignored)) {
    const std::string name = entry.path().filename().string();
    std::string_view behind_dash = std::string_view(name).substr(name.find('-') + 1);  // hugepages-2048kB
    const size_t kib = take_decimal(behind_dash).value_or(0);
    const size_t bytes = kib * 1024 * number_in(entry.path().string() + "/free_hugepages");
    free += bytes;
    if (bytes != 0) largest = std::max(largest, kib);
  }
  const std::string amounts = fmt::format("{} MiB free, {} MiB needed", free >> 20, (need + (1 << 20) - 1) >> 20);
  // A part of a page is a page.
  if (free >= need && free >= largest * 1024) return report.ok("hugepages: " + amounts);
  report.fail("hugepages", amounts,
              fmt::format("as root: echo {} > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages, or memory: "
                          "{{hugepages: false}}",
                          (need >> 21) + 1));
}

void check_port_permissions(const PortConfig& port, CheckReport& report) {
  if (is_tap(port)) check_tap_port(port, report);
  if (!interface_of(port).empty()) check_kernel_port(port, report);
  if (!pci_address(port).empty()) check_pci_port(port, report);
}

void check_permissions(const NodeConfig& config, CheckReport& report) {
  for (const PortConfig& port : config.ports) check_port_permissions(port, report);
  check_folder("socket", config.socket, report);
  if (fs::path(config.admin).parent_path() != fs::path(config.socket).parent_path()) {
    check_folder("admin", config.admin, report);
  }
}

}  // namespace gradlane
