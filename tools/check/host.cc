// host.cc - checks of the machine that a daemon is to run on: files, hugepages, rights (main thread only)
#include "tools/check/host.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "config/devargs.h"
#include "config/devices.h"
#include "dataplane/device/port_kinds.h"
#include "dataplane/kernel/hugepages.h"
#include "dataplane/kernel/kernel_interface.h"
#include "dataplane/kernel/pci_device.h"
#include "dataplane/node/key_file.h"
#include "dataplane/node/pair_keys.h"

namespace gradlane {
namespace {

namespace fs = std::filesystem;

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
  // Capabilities are checked and not the user, because root in a container may lack them.
  if (has_capability(CAP_NET_RAW) && has_capability(CAP_NET_ADMIN)) return report.ok(what);
  report.fail(what, "raw packets of an interface need root, or CAP_NET_RAW and CAP_NET_ADMIN",
              "run with sudo, or: setcap cap_net_raw,cap_net_admin+ep $(which gradlaned)");
}

void check_tap_port(const PortConfig& port, CheckReport& report) {
  const std::string what = fmt::format("permissions for port {}", port.name);
  if (has_capability(CAP_NET_ADMIN) && access("/dev/net/tun", R_OK | W_OK) == 0) return report.ok(what);
  report.fail(what, "creating an interface needs root, or CAP_NET_ADMIN and /dev/net/tun", "run with sudo");
}

void check_pci_port(const PortConfig& port, CheckReport& report) {
  const std::string address = pci_address(port);
  const std::string what = fmt::format("PCI device {} of port {}", address, port.name);
  const PciDevice card = look_at_card(address);
  if (const auto trouble = problem_with(card)) return report.fail(what, trouble->what, trouble->advice);
  report.ok(fmt::format("{}, driver {}", what, card.driver));
}

}  // namespace

void check_user(const std::string& user, CheckReport& report) {
  if (user.empty()) return;
  const std::string what = fmt::format("user '{}'", user);
  getpwnam(user.c_str()) != nullptr ? report.ok(what)
                                    : report.fail(what, "there is no such user", "create it, or remove `user`");
}

void check_folder(const char* key, const std::string& socket, CheckReport& report) {
  const size_t slash = socket.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : socket.substr(0, slash);
  const std::string what = fmt::format("folder of `{}` {}", key, folder);
  std::error_code ignored;
  if (fs::exists(folder, ignored)) {
    if (access(folder.c_str(), W_OK | X_OK) == 0) return report.ok(what + " can be written to");
    return report.fail(what, "no permission to create a socket there",
                       "run as its owner or as root, or set `socket` to a path that you can write to");
  }
  const fs::path parent = fs::path(folder).parent_path().empty() ? "." : fs::path(folder).parent_path();
  if (access(parent.c_str(), W_OK | X_OK) == 0) return report.ok(what + " can be created");
  report.fail(what, fmt::format("it does not exist, and cannot be created in {}", parent.string()),
              "create it, run as root, or set `socket` to a path that you can write to");
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

std::string pci_address(const PortConfig& port) { return port.kind == PortConfig::Kind::kPci ? device_key(port) : ""; }

void check_files(const NodeConfig& config, CheckReport& report) {
  check_user(config.user, report);
  if (config.security == Security::kNone) return;
  if (config.key_file == kPairKeyFile) return report.ok("keys: agreed on when the daemons start");
  const std::string what = fmt::format("key file {}", config.key_file);
  try {
    (void)read_key_file(config.key_file, "auth.key_file " + config.key_file);
    report.ok(what);
  } catch (const SetupError& error) {
    report.fail(what, error.what(), "docs/security.md says how to make it");
  }
}

void check_hugepages(size_t need, const std::vector<PortConfig>& ports, CheckReport& report) {
  if (need == 0) return report.ok("hugepages: not used");
  need += kEalBytes;
  std::vector<std::string> cards;
  for (const PortConfig& port : ports) {
    if (!pci_address(port).empty()) cards.push_back(pci_address(port));
  }
  const int node = node_of_cards(cards);
  const Hugepages pages = hugepages_for(node, need);
  const std::string text = hugepages_text(pages, need);
  if (!enough(pages, need)) return report.fail("hugepages", text, hugepages_advice(pages, need));
  if (pages.node < 0 || node < 0 || pages.node == node) return report.ok("hugepages: " + text);
  report.note(
      "hugepages",
      fmt::format("{}; the cards are at NUMA node {}, which has too few: every packet crosses between the nodes", text,
                  node));
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
