// kernel_network.h - addresses and routes of an interface, that move to another one (main thread only)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/accelerator/commands/rtnetlink.h"

namespace gradlane {

// What people, programs and DHCP have given an interface. Not what the kernel makes itself: routes to networks of
// addresses, link-local addresses, and what it learns from routers. All throw SetupError.
class KernelNetwork {
 public:
  static KernelNetwork of(RtNetlink& kernel, const Link& link);

  [[nodiscard]] bool empty() const noexcept { return addresses_.empty() && routes_.empty(); }
  // "10.77.0.1/24, 10.78.0.1/24 and 2 routes".
  [[nodiscard]] std::string text() const;

  // Takes it away from one, as far as it has it.
  void erase(RtNetlink& kernel, const Link& at) const;
  // Gives it to one. What is there already stays. Routes that the kernel refuses are named, and left out.
  [[nodiscard]] std::vector<std::string> give(RtNetlink& kernel, const Link& to) const;

 private:
  using Payload = std::vector<uint8_t>;  // of a message: fixed part and attributes
  void read_addresses(RtNetlink& kernel);
  void read_routes(RtNetlink& kernel);

  Link link_;
  std::vector<Payload> addresses_;
  std::vector<Payload> routes_;  // those over a gateway behind the others
};

}  // namespace gradlane
