// host.h - what a daemon needs of its machine: memory, rights, CPUs (main thread only)
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "tools/check/report.h"

namespace gradlane {

// Files that the configuration names, and the user.
void check_files(const NodeConfig& config, CheckReport& report);
void check_user(const std::string& user, CheckReport& report);
// `need` bytes of packet buffers for these ports; 0: none of them is in hugepages.
void check_hugepages(size_t need, const std::vector<PortConfig>& ports, CheckReport& report);
// Of this process, for the daemon that it would start.
void check_permissions(const NodeConfig& config, CheckReport& report);
void check_port_permissions(const PortConfig& port, CheckReport& report);
// The folder of a socket is there and can be written to, or can be made. `key`: of the configuration.
void check_folder(const char* key, const std::string& socket, CheckReport& report);

// Threads that poll, and the names of their settings.
struct CheckedWorkers {
  std::string section;          // "workers"
  std::string cores_key;        // "workers.cores"
  std::vector<unsigned> cores;  // empty: anywhere
  unsigned threads = 1;
  IdlePolicy idle = IdlePolicy::kAdaptive;
};
[[nodiscard]] CheckedWorkers workers_of(const NodeConfig& config);
void check_cpus(const CheckedWorkers& workers, CheckReport& report);
// Ports against the workers' cores.
void check_numa(const std::vector<PortConfig>& ports, const std::vector<unsigned>& cores, CheckReport& report);

// ---- Shared with links.cc

// "gl0" of "net_af_packet0,iface=gl0,...", for ports on interfaces of the kernel; else empty.
[[nodiscard]] std::string interface_of(const PortConfig& port);
// "0000:03:00.0" of a PCI port, else empty.
[[nodiscard]] std::string pci_address(const PortConfig& port);
// The first line of a file; empty if there is none.
[[nodiscard]] std::string first_line(const std::string& path);
// Of "0-3,8": 0 1 2 3 8.
[[nodiscard]] std::vector<unsigned> parse_cpu_list(std::string_view text);

}  // namespace gradlane
