// service_files.cc - files of systemd and udev that keep a NIC set up (pure)
#include "tools/nic/service_files.h"

#include <fmt/format.h>

namespace gradlane {
namespace {

constexpr const char* kUnits = "/etc/systemd/system";

// Returns the path as systemd wants it in ExecStart=.
std::string quoted(const std::string& path) {
  std::string text = "\"";
  for (const char c : path) {
    if (c == '"' || c == '\\') text += '\\';
    if (c == '%' || c == '$') text += c;
    text += c;
  }
  return text + "\"";
}

// The unit runs before any network manager can configure the interface of the kernel's driver. It has a timeout,
// because the network of the machine waits for it.
std::string unit_text(const NicState& state, const std::string& program) {
  return fmt::format(
      "# Made by 'gradlane nic setup {0}'; 'gradlane nic undo {0}' removes it.\n"
      "[Unit]\n"
      "Description=NIC {0} for gradlaned@{1}\n"
      "DefaultDependencies=no\n"
      "RequiresMountsFor=/var/lib/gradlane\n"
      "After=local-fs.target systemd-modules-load.service systemd-sysctl.service\n"
      "Wants=network-pre.target\n"
      "Before=network-pre.target shutdown.target\n"
      "Conflicts=shutdown.target\n"
      "\n"
      "[Service]\n"
      "Type=oneshot\n"
      "RemainAfterExit=yes\n"
      "TimeoutStartSec=2min\n"
      "ExecStart={2} nic setup {0}\n",
      state.pci, state.instance, quoted(program));
}

// The number of a group may be another one after each boot, so the rule looks for the NIC in it.
std::string rule_text(const NicState& state) {
  return fmt::format(
      "# Made by 'gradlane nic setup {0}'; 'gradlane nic undo {0}' removes it.\n"
      "SUBSYSTEM==\"vfio\", TEST==\"/sys/kernel/iommu_groups/%k/devices/{0}\", OWNER=\"{1}\", GROUP=\"root\", "
      "MODE=\"0600\"\n",
      state.pci, state.user);
}

// The settings of packaging/service/card.conf, and the order of the units.
std::string drop_in_text(const NicState& state) {
  return fmt::format(
      "# Made by 'gradlane nic setup {0}'; 'gradlane nic undo {0}' removes it.\n"
      "[Unit]\n"
      "Wants={1}\n"
      "After={1}\n"
      "\n"
      "[Service]\n"
      "PrivateDevices=no\n"
      "DeviceAllow=/dev/vfio/vfio rw\n"
      "DeviceAllow=char-vfio rw\n"
      "LimitMEMLOCK=infinity\n",
      state.pci, unit_name(state.pci));
}

}  // namespace

std::string unit_name(const std::string& pci) { return fmt::format("gradlane-nic@{}.service", pci); }

std::vector<ServiceFile> service_files(const NicState& state, const std::string& program) {
  const std::string unit = fmt::format("{}/{}", kUnits, unit_name(state.pci));
  std::vector<ServiceFile> files = {
      {unit, unit_text(state, program), "sets the NIC up at each boot"},
      {fmt::format("{}/multi-user.target.wants/{}", kUnits, unit_name(state.pci)), unit, "enables that unit", true}};
  if (state.no_iommu) return files;
  files.push_back({fmt::format("/etc/udev/rules.d/60-gradlane-nic-{}.rules", state.pci), rule_text(state),
                   fmt::format("user {} may open the NIC", state.user)});
  files.push_back({fmt::format("{}/gradlaned@{}.service.d/nic-{}.conf", kUnits, state.instance, state.pci),
                   drop_in_text(state), fmt::format("gradlaned@{} may use the NIC", state.instance)});
  return files;
}

}  // namespace gradlane
