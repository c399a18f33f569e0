// cpus.cc - checks of workers' cores: existence, isolation, and NUMA distance from the ports (main thread only)
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/parse.h"
#include "tools/check/host.h"

namespace gradlane {
namespace {

namespace fs = std::filesystem;

std::vector<unsigned> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<unsigned> cpus;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

bool contains(const std::vector<unsigned>& all, unsigned one) { return std::ranges::find(all, one) != all.end(); }

std::string cpu_folder(unsigned cpu) { return fmt::format("/sys/devices/system/cpu/cpu{}", cpu); }

// Reports cores that cannot be used at all. Returns whether there are none.
bool check_each_core(const CheckedWorkers& workers, const std::vector<unsigned>& allowed, CheckReport& report) {
  bool good = true;
  for (const unsigned core : workers.cores) {
    if (contains(allowed, core)) continue;
    good = false;
    std::error_code ignored;
    const bool there = fs::exists(cpu_folder(core), ignored);
    report.fail(fmt::format("CPU {} of `{}`", core, workers.cores_key),
                there ? "this process may not run on it" : "there is no such CPU",
                fmt::format("use of {}", fmt::join(allowed, ", ")));
  }
  return good;
}

void check_pinned(const CheckedWorkers& workers, CheckReport& report) {
  const std::string cores = fmt::format("{}", fmt::join(workers.cores, ", "));
  report.ok(fmt::format("CPUs {} of `{}`", cores, workers.cores_key));
  const std::vector<unsigned> isolated = parse_cpu_list(first_line("/sys/devices/system/cpu/isolated"));
  const bool alone = std::ranges::all_of(workers.cores, [&](unsigned core) { return contains(isolated, core); });
  alone ? report.ok("CPUs of workers are isolated")
        : report.note(
              "isolation",
              fmt::format("the kernel also runs other threads on CPUs {}; for steady times, boot with isolcpus={}",
                          cores, fmt::join(workers.cores, ",")));
  for (size_t i = 0; i < workers.cores.size(); ++i) {
    const std::string path = cpu_folder(workers.cores[i]) + "/topology/thread_siblings_list";
    const std::vector<unsigned> siblings = parse_cpu_list(first_line(path));
    for (size_t j = i + 1; j < workers.cores.size(); ++j) {
      if (workers.cores[i] != workers.cores[j] && !contains(siblings, workers.cores[j])) continue;
      report.note("SMT", fmt::format("CPUs {} and {} are threads of one core, so the two workers share its speed",
                                     workers.cores[i], workers.cores[j]));
    }
  }
}

// Returns the NUMA node of a device from its folder in sysfs; -1 if it is unknown, or there is only one.
int numa_of_device(const std::string& folder) {
  const std::string text = first_line(folder + "/numa_node");
  const auto node = parse_decimal(text);
  return node ? static_cast<int>(*node) : -1;
}

int numa_of_cpu(unsigned cpu) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(cpu_folder(cpu), ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("node")) continue;
    if (const auto node = parse_decimal(std::string_view(name).substr(4))) return static_cast<int>(*node);
  }
  return -1;
}

}  // namespace

std::vector<unsigned> parse_cpu_list(std::string_view text) {
  std::vector<unsigned> all;
  while (const auto first = take_decimal(text)) {
    uint64_t last = *first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      last = take_decimal(text).value_or(last);
    }
    for (uint64_t cpu = *first; cpu <= last && all.size() < CPU_SETSIZE; ++cpu) {
      all.push_back(static_cast<unsigned>(cpu));
    }
    if (!text.starts_with(',')) break;
    text.remove_prefix(1);
  }
  return all;
}

CheckedWorkers workers_of(const NodeConfig& config) {
  return {"workers", "workers.cores", config.cores, config.threads, config.idle};
}

void check_cpus(const CheckedWorkers& workers, CheckReport& report) {
  const std::vector<unsigned> allowed = allowed_cpus();
  if (!workers.cores.empty()) {
    if (check_each_core(workers, allowed, report)) check_pinned(workers, report);
  } else {
    report.ok(fmt::format("{} worker thread{}, {} CPU{}", workers.threads, workers.threads == 1 ? "" : "s",
                          allowed.size(), allowed.size() == 1 ? "" : "s"));
  }
  if (workers.idle == IdlePolicy::kAdaptive || allowed.size() > workers.threads) return;
  const std::string text =
      fmt::format("{} thread{} that never sleep{} on {} CPU{}", workers.threads, workers.threads == 1 ? "" : "s",
                  workers.threads == 1 ? "s" : "", allowed.size(), allowed.size() == 1 ? "" : "s");
  if (workers.idle == IdlePolicy::kSpin && allowed.size() < workers.threads) {
    return report.fail(workers.section + ".idle: spin", text, "set workers.idle to adaptive, or workers.threads lower");
  }
  report.note(workers.section + ".idle",
              text + ": other programs and the daemon's other threads get little time there");
}

void check_numa(const std::vector<PortConfig>& ports, const std::vector<unsigned>& cores, CheckReport& report) {
  bool looked = false;
  bool good = true;
  for (const PortConfig& port : ports) {
    const std::string pci = pci_address(port);
    const std::string interface = interface_of(port);
    if (pci.empty() && interface.empty()) continue;
    const int node =
        numa_of_device(pci.empty() ? "/sys/class/net/" + interface + "/device" : "/sys/bus/pci/devices/" + pci);
    for (const unsigned core : cores) {
      const int core_node = numa_of_cpu(core);
      if (node < 0 || core_node < 0) continue;
      looked = true;
      if (node == core_node) continue;
      good = false;
      report.note(
          "NUMA",
          fmt::format("port {} is at NUMA node {}, but CPU {} is at node {}: every packet crosses between the two",
                      port.name, node, core, core_node));
    }
  }
  if (looked && good) report.ok("NUMA: ports and workers are at the same node");
}

}  // namespace gradlane
