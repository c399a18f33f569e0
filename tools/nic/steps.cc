// steps.cc - the steps of `gradlane nic setup` and their reversal, each with a line of output (main thread only)
#include "tools/nic/steps.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tools/nic/service_files.h"

namespace gradlane {
namespace {

constexpr const char* kPciBus = "/sys/bus/pci";
constexpr const char* kNoIommuMode = "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode";
constexpr const char* kPageFile = "hugepages/hugepages-2048kB/nr_hugepages";

std::string page_file(const Host& host, int node) {
  const std::string of_node = fmt::format("/sys/devices/system/node/node{}/{}", node, kPageFile);
  return node >= 0 && host.has(of_node) ? of_node : fmt::format("/sys/kernel/mm/{}", kPageFile);
}

std::string pages_text(uint64_t pages, int node) {
  return fmt::format("{} hugepages of 2 MiB{}", pages, node < 0 ? "" : fmt::format(" on NUMA node {}", node));
}

std::string boot_id(const Host& host) { return printable(host.line("/proc/sys/kernel/random/boot_id")); }

std::string driver_of(const Host& host, const std::string& address) {
  return host.link(device_folder(address) + "/driver");
}

std::string interfaces_text(const std::vector<std::string>& interfaces) {
  return printable(fmt::format("interface {}", fmt::join(interfaces, ", ")));
}

std::string program_path() {
  std::error_code none;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe", none).string();
  return path.empty() ? "/usr/bin/gradlane" : path;
}

// Says if another user owns the program or a folder above it, as in a virtual environment at home.
void note_owner(const std::string& program) {
  for (std::filesystem::path part = program; !part.empty(); part = part.parent_path()) {
    struct stat found {};
    if (stat(part.c_str(), &found) == 0 && found.st_uid != 0) {
      fmt::print("note: root runs {} at each boot, and user {} can change it: better install gradlane as root\n",
                 printable(program), found.st_uid);
      return;
    }
    if (part == part.parent_path()) return;
  }
}

}  // namespace

bool NicSteps::only_says(const char* what, const std::string& text) const {
  if (is_dry_run_) fmt::print("would {} {}\n", what, text);
  return is_dry_run_;
}

void NicSteps::say(const char* what, const std::string& text) {
  fmt::print("{} {}\n", what, text);
  std::fflush(stdout);
}

void NicSteps::save(const NicState& state) const {
  if (!is_dry_run_) save_state(host_, state);
}

void NicSteps::load_modules(const NicState& state) const {
  for (const auto& [name, folder] :
       {std::pair{kVfio, "/sys/module/vfio_pci"}, std::pair{"vfio_iommu_type1", "/sys/module/vfio_iommu_type1"}}) {
    const std::string text = fmt::format("the kernel's module {}", name);
    if (host_.has(folder) || only_says("load", text)) continue;
    if (const std::string fault = host_.run({"modprobe", name}); !fault.empty()) {
      throw SetupError(fmt::format("{} cannot be loaded: {}; it is in the kernel's package", text, fault));
    }
    say("loaded", text);
  }
  if (state.no_iommu) allow_no_iommu();
}

void NicSteps::allow_no_iommu() const {
  const std::string text = "NICs without an IOMMU: they can write to all memory, and only root can open them";
  if (host_.line(kNoIommuMode) == "Y" || only_says("allow", text)) return;
  if (!host_.has(kNoIommuMode)) {
    throw SetupError(
        "this kernel cannot use vfio without an IOMMU (it lacks CONFIG_VFIO_NOIOMMU): switch the IOMMU on, or use a "
        "port on the kernel's interface (docs/nic.md)");
  }
  host_.write_attribute(kNoIommuMode, "Y");
  say("allowed", text);
}

void NicSteps::add_hugepages(NicState& state) const {
  if (state.hugepages == 0 || (!state.boot.empty() && state.boot == boot_id(host_))) return;
  const std::string path = page_file(host_, state.node);
  const std::string what = pages_text(state.hugepages, state.node);
  const auto before = host_.number(path);
  if (!before) throw SetupError(fmt::format("this kernel has no hugepages of 2 MiB ({}): add --hugepages 0", path));
  if (only_says("add", fmt::format("{} to the {} that there are", what, *before))) return;
  host_.write_attribute(path, std::to_string(*before + state.hugepages));
  const uint64_t after = host_.number(path).value_or(0);
  if (after < *before + state.hugepages) {
    host_.write_attribute(path, std::to_string(*before));
    throw SetupError(
        fmt::format("only {} of {} are free: the memory is too small or fragmented; reboot, or give the kernel the "
                    "argument hugepages={} and add --hugepages 0",
                    after - std::min(after, *before), what, state.hugepages));
  }
  state.boot = boot_id(host_);
  save(state);
  say("added", fmt::format("{}: {} -> {}", what, *before, after));
}

void NicSteps::write_files(const NicState& state) const {
  bool changed = false;
  for (const ServiceFile& file : service_files(state, program_path())) {
    const size_t most = file.text.size() + 1;
    if (file.is_link ? !host_.link(file.path).empty() : host_.text(file.path, most) == file.text) continue;
    changed = true;
    const std::string what = fmt::format("{}: {}", file.path, file.what);
    if (only_says("write", what)) continue;
    file.is_link ? host_.make_link(file.path, file.text) : host_.write_file(file.path, file.text);
    say("wrote", what);
  }
  if (changed) note_owner(program_path());
  if (changed) tell_systemd();
}

void NicSteps::bind(const Nic& nic, const NicState& state) const {
  if (nic.driver != kVfio) {
    const std::string gone = nic.interfaces.empty() ? "" : "; the kernel loses " + interfaces_text(nic.interfaces);
    const std::string what = fmt::format("{} to {}{}", nic.address, kVfio, gone);
    if (!only_says("bind", what)) {
      bind_to_vfio(nic.address);
      say("bound", what);
    }
  }
  if (!state.no_iommu) give_to_user(nic, state);
}

void NicSteps::bind_to_vfio(const std::string& address) const {
  constexpr int kMostTries = 3;
  const std::string folder = device_folder(address);
  host_.write_attribute(folder + "/driver_override", kVfio);
  std::string fault = "it has no driver";
  int tries = 0;
  const bool is_bound = wait_until([&] {
    const std::string driver = driver_of(host_, address);
    // Another driver can take the NIC once more, if its module is being loaded at this moment.
    if (driver == kVfio || tries == kMostTries || (tries > 0 && driver.empty())) return driver == kVfio;
    ++tries;
    try {
      if (!driver.empty()) host_.write_attribute(folder + "/driver/unbind", address);
      host_.write_attribute(std::string(kPciBus) + "/drivers_probe", address);
    } catch (const SetupError& error) {
      fault = error.what();
    }
    return driver_of(host_, address) == kVfio;
  });
  if (is_bound) return;
  throw SetupError(fmt::format("{} cannot be bound to {}: {}; the last lines of dmesg say why", address, kVfio, fault));
}

void NicSteps::give_to_user(const Nic& nic, const NicState& state) const {
  const std::string path = "/dev/vfio/" + nic.group;
  const std::string what = fmt::format("{} to user {}", path, state.user);
  if (only_says("give", what)) return;
  const auto user = host_.user_id(state.user);
  if (!user) throw SetupError(fmt::format("there is no user {}: add it, or undo the set-up", state.user));
  if (!wait_until([&] { return host_.has(path); })) {
    throw SetupError(fmt::format("there is no {} for {}; is this a container?", path, nic.address));
  }
  host_.give_to(path, *user);
  say("gave", what);
}

std::string NicSteps::undo(const NicState& state) const {
  std::string faults;
  const auto attempt = [&](const auto& step) {
    try {
      step();
    } catch (const SetupError& error) {
      faults += (faults.empty() ? "" : "; ") + std::string(error.what());
    }
  };
  attempt([&] { give_back(state); });
  attempt([&] { remove_files(state); });
  attempt([&] { remove_hugepages(state); });
  attempt([&] { forbid_no_iommu(state); });
  if (!is_dry_run_) attempt([&] { host_.remove(state_file(state.pci)); });
  return faults;
}

void NicSteps::forbid_no_iommu(const NicState& state) const {
  const std::vector<std::string> groups = host_.names("/dev/vfio");
  const auto is_used = [](const std::string& name) { return name.starts_with("noiommu-"); };
  if (!state.no_iommu || host_.line(kNoIommuMode) != "Y" || std::ranges::any_of(groups, is_used)) return;
  if (only_says("forbid", "NICs without an IOMMU")) return;
  host_.write_attribute(kNoIommuMode, "N");
  say("forbade", "NICs without an IOMMU");
}

void NicSteps::give_back(const NicState& state) const {
  const std::string folder = device_folder(state.pci);
  const auto nic = read_nic(host_, state.pci);
  if (!nic || nic->ids != state.ids) {
    fmt::print("note: {} is not in the machine any more\n", state.pci);
    return;
  }
  if (only_says("give", fmt::format("{} to the kernel's driver {}", state.pci, state.driver))) return;
  host_.write_attribute(folder + "/driver_override", "");
  if (nic->driver == kVfio) host_.write_attribute(folder + "/driver/unbind", state.pci);
  if (nic->driver == kVfio || nic->driver.empty()) {
    // The module is missing if it was not loaded since a reboot.
    if (!state.driver.empty() && !host_.has(fmt::format("{}/drivers/{}", kPciBus, state.driver))) {
      (void)host_.run({"modprobe", state.driver});
    }
    host_.write_attribute(std::string(kPciBus) + "/drivers_probe", state.pci);
  }
  const auto is_back = [&] {
    const std::string driver = driver_of(host_, state.pci);
    return state.driver.empty() || (!driver.empty() && driver != kVfio);
  };
  if (!wait_until(is_back)) {
    throw SetupError(fmt::format("no driver of the kernel has taken {}: modprobe {}, then echo {} > {}/drivers_probe",
                                 state.pci, state.driver, state.pci, kPciBus));
  }
  const auto now = read_nic(host_, state.pci);
  if (!now || now->driver.empty()) return;
  say("gave", fmt::format("{} to the kernel's driver {}{}", state.pci, printable(now->driver),
                          now->interfaces.empty() ? "" : ": " + interfaces_text(now->interfaces)));
}

void NicSteps::remove_files(const NicState& state) const {
  bool changed = false;
  for (const ServiceFile& file : service_files(state, "")) {
    if (only_says("remove", file.path) || !host_.remove(file.path)) continue;
    changed = true;
    say("removed", file.path);
    std::error_code none;  // the drop-in's folder goes if nothing else is in there
    if (file.path.ends_with(".conf")) {
      std::filesystem::remove(std::filesystem::path(host_.path(file.path)).parent_path(), none);
    }
  }
  if (changed) tell_systemd();
}

void NicSteps::remove_hugepages(const NicState& state) const {
  if (state.hugepages == 0 || state.boot.empty() || state.boot != boot_id(host_)) return;
  const std::string path = page_file(host_, state.node);
  const uint64_t before = host_.number(path).value_or(0);
  const uint64_t after = before - std::min(before, state.hugepages);
  const std::string what = fmt::format("{}: {} -> {}", pages_text(state.hugepages, state.node), before, after);
  if (only_says("remove", what)) return;
  host_.write_attribute(path, std::to_string(after));
  say("removed", what);
}

void NicSteps::tell_systemd() const {
  if (is_dry_run_) return;
  if (!host_.has("/run/systemd/system")) {
    fmt::print("note: systemd does not run here, so nothing repeats this after a reboot\n");
  } else if (const std::string fault = host_.run({"systemctl", "daemon-reload"}); !fault.empty()) {
    fmt::print("note: {}: systemd does not know the new files yet\n", fault);
  }
}

}  // namespace gradlane
