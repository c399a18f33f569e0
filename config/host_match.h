// host_match.h - from hosts that were looked up to the table of nodes, and which of them this machine is (set-up only)
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/addresses.h"
#include "config/host_list.h"

namespace gradlane {

// What the kernel has, on an interface that is up or not.
struct LocalIp {
  IpAddress ip;
  std::string interface;
  size_t mtu = 0;  // 0: not known
};

// A host of the list, and what its name means here.
struct FoundHost {
  Host host;
  std::vector<IpAddress> ips;
};

// One address of each host, all of IPv4 if they have such, else of IPv6; all or none of loopback. Throws SetupError if
// there is none, or a host has several: other machines could take another one.
[[nodiscard]] std::vector<IpAddress> choose_ips(const std::vector<FoundHost>& hosts, const std::string& where);

// By name; nothing: it is not set.
using Environment = std::function<std::optional<std::string>(const char*)>;

struct RankHere {
  unsigned rank = 0;
  std::string launcher;  // "1 of 2 (PMI_RANK)", if it is that one's; empty: it is that of an address
};

// The place of the address that this machine has. If it has none or several, that which mpirun or srun have given,
// where they say that they started as many processes as there are hosts. Throws SetupError, which lists what was found.
[[nodiscard]] RankHere rank_here(const std::vector<FoundHost>& hosts, const std::vector<IpAddress>& ips,
                                 const std::vector<LocalIp>& here, const Environment& environment,
                                 const std::string& where);

}  // namespace gradlane
