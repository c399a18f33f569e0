// setup.cc - `gradlane nic setup` and `undo`: checks first, then the steps (main thread only)
#include "tools/nic/setup.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "base/error.h"
#include "config/accelerator.h"
#include "config/devices.h"
#include "dataplane/kernel/pci_device.h"
#include "dataplane/node/node.h"
#include "tools/check/host.h"
#include "tools/nic/host.h"
#include "tools/nic/kernel_needs.h"
#include "tools/nic/list.h"
#include "tools/nic/nic.h"
#include "tools/nic/state.h"
#include "tools/nic/steps.h"

namespace gradlane {
namespace {

constexpr size_t kPageBytes = size_t{2} << 20;
constexpr uint64_t kMostPages = uint64_t{1} << 20;  // 2 TiB
constexpr const char* kInstance = "node";
constexpr const char* kUser = "gradlane";
// A node with the sizes that docs/nic.md recommends; its hugepages are for nodes whose file is not written yet.
constexpr const char* kUsualNode =
    "rank: 0\nnodes: [{rank: 0, ip: 10.0.0.1}, {rank: 1, ip: 10.0.0.2}]\nmtu: 9000\n"
    "workers: {lanes: 2}\nmemory: {hugepages: true}\nports: [{name: e0, pci: '0000:00:00.0'}]\n";

std::string config_file(const std::string& instance) { return fmt::format("/etc/gradlane/{}.yaml", instance); }

uint64_t pages_for(const AnyConfig& config) {
  const NodeConfig* const node = std::get_if<NodeConfig>(&config);
  if (node == nullptr) return pages_for(parse_any_config(kUsualNode, "usual"));
  return node->hugepages ? (Node::packet_bytes(*node) + kEalBytes + kPageBytes - 1) / kPageBytes : 0;
}

// Returns the number of hugepages that the daemon of this instance needs. The NICs of a daemon share its hugepages.
uint64_t pages_of(const Host& host, const std::string& instance) {
  for (const NicState& other : all_states(host)) {
    if (other.instance == instance && other.hugepages > 0) return 0;
  }
  const std::string path = host.path(config_file(instance));
  if (!host.has(config_file(instance))) return pages_for(parse_any_config(kUsualNode, "usual"));
  try {
    const uint64_t pages = pages_for(load_any_config(path));
    if (pages == 0) fmt::print("note: {} has no `memory: {{hugepages: true}}`, so none are added\n", path);
    return pages;
  } catch (const SetupError& error) {
    fmt::print("note: {}; hugepages are for MTU 9000 and 2 lanes\n", error.what());
    return pages_for(parse_any_config(kUsualNode, "usual"));
  }
}

std::string iommu_advice(const Host& host, const std::string& address) {
  const std::string cpus = host.text("/proc/cpuinfo", 4096);
  const bool is_intel = cpus.find("GenuineIntel") != std::string::npos;
  const bool is_amd = cpus.find("AuthenticAMD") != std::string::npos;
  const std::string words = is_intel ? "intel_iommu=on iommu=pt" : is_amd ? "iommu=pt" : "";
  const std::string command_line = host.line("/proc/cmdline");
  const size_t last = command_line.rfind("intel_iommu=");
  const bool has_words = is_intel && last != std::string::npos && command_line.compare(last, 14, "intel_iommu=on") == 0;
  std::string advice = fmt::format("switch the IOMMU on in the firmware ({})", is_intel ? "VT-d"
                                                                               : is_amd ? "AMD-Vi"
                                                                                        : "SMMU");
  if (!words.empty() && !has_words) {
    advice += fmt::format(
        ", add '{}' to the kernel's arguments (Debian: GRUB_CMDLINE_LINUX in /etc/default/grub, then update-grub)",
        words);
  }
  return fmt::format(
      "{} is in no IOMMU group, which vfio-pci needs: {}, and reboot. Or add --no-iommu: then the NIC can write to all "
      "memory, only root can open it, and gradlaned@.service, which is not root, cannot use it",
      address, advice);
}

std::string serial_text(const std::string& serial) { return serial.empty() ? "" : " (" + serial + ")"; }

class NicCommand {
 public:
  explicit NicCommand(const NicOptions& options)
      : options_(options), host_(options.root), steps_(host_, options.dry_run) {
    for (const std::string& word : options.nics) {
      if (!is_pci_address(word)) {
        throw SetupError(
            fmt::format("'{}' is no PCI address, such as 0000:03:00.0; see 'gradlane nic list'", printable(word)));
      }
      addresses_.insert(full_pci_address(word));
    }
    if (options.hugepages > kMostPages) throw SetupError(fmt::format("--hugepages: at most {}", kMostPages));
    if (options.dry_run) return;
    if (geteuid() != 0 && host_.is_real()) throw SetupError("only root can do this; --dry-run shows the steps");
    lock_ = host_.lock("/run/gradlane-nic.lock");  // units of several NICs start at the same time
  }

  void setup() {
    for (const std::string& address : addresses_) check(found(address), load_state(host_, address));
    std::vector<NicState> added;
    try {
      for (const std::string& address : addresses_) {
        const Nic nic = found(address);
        nic.is_bifurcated() ? say_bifurcated(nic) : set_up(nic, added);
      }
    } catch (const SetupError& error) {
      if (added.empty()) throw;
      throw SetupError(fmt::format("{}. All steps before it are undone{}", error.what(), undo_all(added)));
    }
    print_ports({addresses_.begin(), addresses_.end()});
  }

  void undo() {
    std::string faults;
    for (const std::string& address : addresses_) {
      auto state = load_state(host_, address);
      if (!state) {
        fmt::print("{} was not set up; nothing to undo\n", address);
        continue;
      }
      check_unused(address);
      hand_over_hugepages(*state);
      const std::string fault = steps_.undo(*state);
      if (!fault.empty()) faults += (faults.empty() ? "" : "; ") + fault;
    }
    if (!faults.empty()) throw SetupError(faults);
  }

 private:
  [[nodiscard]] Nic found(const std::string& address) const {
    const auto nic = read_nic(host_, address);
    if (!nic) throw SetupError(fmt::format("there is no PCI device {}; 'gradlane nic list' has all NICs", address));
    return *nic;
  }

  void check(const Nic& nic, const std::optional<NicState>& before) const {
    const std::string& address = nic.address;
    if (!nic.is_network)
      throw SetupError(fmt::format("{} ({}) is no network device; see 'gradlane nic list'", address, nic.ids));
    if (before && !is_same(*before, nic)) {
      throw SetupError(
          fmt::format("{} is {}{} now, but was {}{} when it was set up: NICs have changed their places; gradlane "
                      "nic undo {}, then set up the address that 'gradlane nic list' shows",
                      address, nic.ids, serial_text(nic.serial), before->ids, serial_text(before->serial), address));
    }
    if (before) check_same_options(*before);
    if (nic.is_bifurcated()) return;
    if (!before) check_unused(address);  // a virtual machine may have it
    if (nic.functions > 0) {
      throw SetupError(
          fmt::format("{} has {} virtual functions, which would go away with its driver: set one of them up, or "
                      "echo 0 > {}/sriov_numvfs",
                      address, nic.functions, device_folder(address)));
    }
    const bool force = options_.force || (before && before->force);
    const std::string need = force ? "" : kernel_need(host_, nic.interfaces);
    if (!need.empty()) {
      throw SetupError(
          fmt::format("{} is needed by this machine: {}. DPDK would take it from the kernel. Set up another NIC, "
                      "or add --force",
                      address, need));
    }
    const bool no_iommu = before ? before->no_iommu : options_.no_iommu;
    if (nic.group.empty() && !no_iommu) throw SetupError(iommu_advice(host_, address));
    check_group(nic);
  }

  // vfio gives a group to a process only if no driver of the kernel has a device in it. Bridges may stay.
  void check_group(const Nic& nic) const {
    for (const std::string& address : nic.companions) {
      const auto other = read_nic(host_, address);
      if (!other || other->driver.empty() || addresses_.contains(address)) continue;
      if (other->driver == kVfio || other->driver == "pcieport" || other->driver == "pci-stub") continue;
      const std::string both = fmt::format("set up both, gradlane nic setup {} {}, or ", nic.address, address);
      throw SetupError(
          fmt::format("IOMMU group {} also has {} (driver {}), and goes to DPDK as a whole: {}put the NIC into "
                      "another slot",
                      nic.group, address, printable(other->driver), other->is_network ? both : ""));
    }
  }

  static bool is_same(const NicState& before, const Nic& nic) {
    const bool both = !before.serial.empty() && !nic.serial.empty();  // only root can read the serial number
    return before.ids == nic.ids && (!both || before.serial == nic.serial);
  }

  void check_same_options(const NicState& before) const {
    const bool same = options_.instance.value_or(before.instance) == before.instance &&
                      options_.user.value_or(before.user) == before.user && (!options_.no_iommu || before.no_iommu);
    if (same) return;
    throw SetupError(
        fmt::format("{0} is set up with --instance {1} --user {2}{3}: gradlane nic undo {0}, then set it up again",
                    before.pci, before.instance, before.user, before.no_iommu ? " --no-iommu" : ""));
  }

  void check_unused(const std::string& address) const {
    const auto nic = read_nic(host_, address);
    if (!nic || nic->driver != kVfio || nic->group.empty()) return;
    for (const char* const prefix : {"/dev/vfio/", "/dev/vfio/noiommu-"}) {
      const std::string file = host_.path(prefix + nic->group);
      const std::string owner = who_has(file, {host_.path("/sys"), host_.path("/dev"), host_.path("/proc")});
      if (!owner.empty()) {
        throw SetupError(
            fmt::format("{} is in use by {}: end it first (systemctl stop gradlaned@NAME)", address, printable(owner)));
      }
    }
  }

  [[nodiscard]] NicState new_state(const Nic& nic) const {
    NicState state;
    state.pci = nic.address;
    state.ids = nic.ids;
    state.serial = nic.serial;
    state.driver = nic.driver == kVfio || !is_plain_name(nic.driver) ? "" : nic.driver;
    state.node = nic.node;
    state.instance = options_.instance.value_or(kInstance);
    state.user = options_.user.value_or(kUser);
    state.no_iommu = nic.group.empty();
    state.force = options_.force;
    if (!is_plain_name(state.instance)) throw SetupError("--instance: must be letters, digits, '-', '_' and '.'");
    if (!is_plain_name(state.user) || (options_.user && !host_.user_id(state.user))) {
      throw SetupError(fmt::format("--user: there is no user '{}'", printable(state.user)));
    }
    if (!state.no_iommu && !host_.user_id(state.user)) {
      fmt::print("note: there is no user {}, which Debian's package of gradlane adds: only root can open the NIC\n",
                 kUser);
      state.user = "root";
    }
    state.hugepages = options_.hugepages ? *options_.hugepages : pages_of(host_, state.instance);
    return state;
  }

  // Appends the NIC's state to `added`, unless an earlier call has set the NIC up.
  void set_up(const Nic& nic, std::vector<NicState>& added) const {
    const auto before = load_state(host_, nic.address);
    NicState known = before ? *before : new_state(nic);
    NicState& state = before || options_.dry_run ? known : added.emplace_back(known);
    if (!before && options_.no_iommu && !state.no_iommu)
      fmt::print("note: the IOMMU is on, so --no-iommu has no effect\n");
    if (nic.is_virtio()) {
      fmt::print("note: {} is a virtio NIC: the hypervisor must put it behind the IOMMU (QEMU: iommu_platform=on)\n",
                 nic.address);
    }
    if (before && options_.hugepages) change_hugepages(state, *options_.hugepages);
    steps_.save(state);
    steps_.load_modules(state);
    steps_.add_hugepages(state);
    steps_.write_files(state);
    steps_.bind(nic, state);
  }

  // If there is no memory for the new number, the old one stays.
  void change_hugepages(NicState& state, uint64_t pages) const {
    const uint64_t before = state.hugepages;
    if (pages == before) return;
    steps_.remove_hugepages(state);
    state.boot.clear();
    try {
      state.hugepages = pages;
      steps_.add_hugepages(state);
    } catch (const SetupError&) {
      state.hugepages = before;
      steps_.save(state);
      steps_.add_hugepages(state);
      throw;
    }
  }

  // The NICs of a daemon share its hugepages: they stay if another NIC of it stays.
  void hand_over_hugepages(NicState& state) const {
    if (state.hugepages == 0) return;
    for (NicState& other : all_states(host_)) {
      if (other.instance != state.instance || other.hugepages > 0 || addresses_.contains(other.pci)) continue;
      fmt::print("note: {} hugepages of 2 MiB stay for {}, which gradlaned@{} also uses\n", state.hugepages, other.pci,
                 state.instance);
      other.hugepages = std::exchange(state.hugepages, 0);
      other.boot = state.boot;
      other.node = state.node;
      steps_.save(other);
      steps_.save(state);
      return;
    }
  }

  // Undoes new set-ups, the last one first. Returns "", or ", but: " and what cannot be undone.
  [[nodiscard]] std::string undo_all(const std::vector<NicState>& states) const {
    std::string faults;
    for (auto state = states.rbegin(); state != states.rend(); ++state) {
      const std::string fault = steps_.undo(*state);
      if (!fault.empty()) faults += (faults.empty() ? ", but: " : "; ") + fault;
    }
    return faults;
  }

  static void say_bifurcated(const Nic& nic) {
    fmt::print(
        "{}: DPDK uses NICs of driver {} beside the kernel, which keeps its interface. Nothing is bound or changed.\n",
        nic.address, nic.driver);
  }

  void print_ports(const std::vector<std::string>& ready) const {
    const auto state = load_state(host_, ready.front());
    fmt::print("\nlines for {}:\nports:\n",
               config_file(state ? state->instance : options_.instance.value_or(kInstance)));
    for (size_t i = 0; i < ready.size(); ++i) fmt::print("  - {{name: e{}, pci: '{}'}}\n", i, ready[i]);
    if (state && state->hugepages > 0) fmt::print("memory: {{hugepages: true}}\n");
    if (!state) return;  // nothing is bound
    fmt::print("\nThe kernel has no interface on this NIC any more: SSH and torchrun's rendezvous need another one.\n");
    if (state->no_iommu) fmt::print("Start gradlaned as root; gradlaned@.service cannot use the NIC.\n");
    fmt::print("'gradlane nic undo {}' undoes all.\n", fmt::join(ready, " "));
  }

  const NicOptions& options_;
  Host host_;
  NicSteps steps_;
  std::set<std::string> addresses_;
  FileDescriptor lock_;
};

}  // namespace

int run_nic(const NicOptions& options) {
  if (options.command == NicOptions::Command::kList) {
    list_nics(Host(options.root), options.json);
  } else if (options.command == NicOptions::Command::kSetup) {
    NicCommand(options).setup();
  } else {
    NicCommand(options).undo();
  }
  return 0;
}

}  // namespace gradlane
