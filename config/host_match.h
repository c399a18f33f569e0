// host_match.h - the choice of one address for each host, and of the host that this machine is (set-up only)
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/addresses.h"
#include "config/host_list.h"

namespace gradlane {

// An address that the kernel has, on an interface that may be down.
struct LocalIp {
  IpAddress ip;
  std::string interface;
  size_t mtu = 0;  // 0 if not known
};

// A host of the list, and the addresses that its name has on this machine.
struct FoundHost {
  Host host;
  std::vector<IpAddress> ips;
};

// Returns one address of each host. All are IPv4 if all hosts have one, otherwise all are IPv6. All are loopback, or
// none is. Throws SetupError if a host has no such address, or several: other machines could choose another one.
[[nodiscard]] std::vector<IpAddress> choose_ips(const std::vector<FoundHost>& hosts, const std::string& where);

// Returns the value of an environment variable, or nothing if it is not set.
using Environment = std::function<std::optional<std::string>(const char*)>;

struct RankHere {
  unsigned rank = 0;
  std::string launcher;  // "1 of 2 (PMI_RANK)" if a launcher gave the rank; empty if an address did
};

// Returns the rank whose address this machine has. If it has none or several of them, returns the rank that mpirun or
// srun gave. The number of processes that they started must then be the number of hosts. Throws SetupError, which lists
// what was found.
[[nodiscard]] RankHere rank_here(const std::vector<FoundHost>& hosts, const std::vector<IpAddress>& ips,
                                 const std::vector<LocalIp>& here, const Environment& environment,
                                 const std::string& where);

}  // namespace gradlane
