// check_host.h - what a node needs of its machine: memory, rights, CPUs (main thread only)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "tools/check_report.h"

namespace gradlane {

// Files that the configuration names, and the user.
void check_files(const NodeConfig& config, CheckReport& report);
void check_hugepages(const NodeConfig& config, CheckReport& report);
// Of this process, for the daemon that it would start.
void check_permissions(const NodeConfig& config, CheckReport& report);
void check_cpus(const NodeConfig& config, CheckReport& report);
// Ports against workers.cores.
void check_numa(const NodeConfig& config, CheckReport& report);

// ---- Shared with check_links.cc

// "gl0" of "net_af_packet0,iface=gl0,...", for ports on interfaces of the kernel; else empty.
[[nodiscard]] std::string interface_of(const PortConfig& port);
// "0000:03:00.0" of a PCI port, else empty.
[[nodiscard]] std::string pci_address(const PortConfig& port);
// The first line of a file; empty if there is none.
[[nodiscard]] std::string first_line(const std::string& path);
// Of "0-3,8": 0 1 2 3 8.
[[nodiscard]] std::vector<unsigned> parse_cpu_list(std::string_view text);

}  // namespace gradlane
