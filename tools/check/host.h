// host.h - checks of the machine that a daemon is to run on: memory, rights, CPUs (main thread only)
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "tools/check/report.h"

namespace gradlane {

inline constexpr size_t kEalBytes = size_t{16} << 20;  // bytes of hugepages that DPDK itself needs

// Check the files that the configuration names, and the user.
void check_files(const NodeConfig& config, CheckReport& report);
void check_user(const std::string& user, CheckReport& report);
// Checks hugepages for these ports. `need` is the number of bytes of packet buffers; 0 if none is in hugepages.
void check_hugepages(size_t need, const std::vector<PortConfig>& ports, CheckReport& report);
// Check the permissions of this process, which the daemon that it starts would have.
void check_permissions(const NodeConfig& config, CheckReport& report);
void check_port_permissions(const PortConfig& port, CheckReport& report);
// Checks that the folder of a socket can be written to, or can be made. `key` is the configuration's name for the
// socket.
void check_folder(const char* key, const std::string& socket, CheckReport& report);

// Threads that poll, with the names of their settings.
struct CheckedWorkers {
  std::string section;          // "workers"
  std::string cores_key;        // "workers.cores"
  std::vector<unsigned> cores;  // empty: any CPU
  unsigned threads = 1;
  IdlePolicy idle = IdlePolicy::kAdaptive;
};
[[nodiscard]] CheckedWorkers workers_of(const NodeConfig& config);
void check_cpus(const CheckedWorkers& workers, CheckReport& report);
// Checks that ports and the workers' cores are at the same NUMA node.
void check_numa(const std::vector<PortConfig>& ports, const std::vector<unsigned>& cores, CheckReport& report);

// ---- Shared with links.cc

// Returns "gl0" for "net_af_packet0,iface=gl0,..." and other ports on interfaces of the kernel; empty for others.
[[nodiscard]] std::string interface_of(const PortConfig& port);
// Returns "0000:03:00.0" for a PCI port; empty for others.
[[nodiscard]] std::string pci_address(const PortConfig& port);
// Returns the first line of a file; empty if there is no file.
[[nodiscard]] std::string first_line(const std::string& path);
// Parses a list such as "0-3,8" into 0 1 2 3 8.
[[nodiscard]] std::vector<unsigned> parse_cpu_list(std::string_view text);

}  // namespace gradlane
