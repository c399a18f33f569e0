// meeting.h - nodes that a launcher has numbered, but told no hosts, learn each other's addresses (set-up only)
//
// Rank 0 listens at an address that all of them have been told. Each of the others connects, says which rank it is, and
// is sent the addresses of all when all have come: those that their connections come from, and rank 0's own. Whoever
// can reach that port can pose as a rank, as can whoever is in a list of hosts: `auth` is for that.
//
//   to rank 0:  "gradlane-meeting 1 RANK WORLD\n"
//   from it:    "nodes IP,IP,...\n", or "refused WHY\n"; then it closes
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "config/config.h"

namespace gradlane {

struct Meeting {
  IpAddress ip{};     // of rank 0
  uint16_t port = 0;  // of TCP
  unsigned rank = 0;
  unsigned world = 1;
  std::chrono::milliseconds patience{120'000};
  // The clock for `patience` and progress messages. poll() still uses the kernel's clock, for at most 1 s at a time.
  std::chrono::steady_clock::time_point (*now)() = std::chrono::steady_clock::now;
};

// The addresses of all ranks, the same on all. `say` is told from time to time who is waited for. Throws SetupError,
// "WHERE: ...": rank 0 does not have that address, or its port is taken; some ranks did not come in time, whom all that
// did are told of; to those who come as one too many, or as one of another number of ranks.
[[nodiscard]] std::vector<IpAddress> meet(const Meeting& meeting, const std::string& where,
                                          const std::function<void(const std::string&)>& say);

}  // namespace gradlane
