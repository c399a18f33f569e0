// kernel_network.h - addresses and routes of an interface, which move to another interface (main thread only)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/accelerator/commands/rtnetlink.h"

namespace gradlane {

// The addresses and routes that people, programs and DHCP have given to an interface. It leaves out what the kernel
// makes itself: routes to the networks of addresses, link-local addresses, and what it learns from routers. All
// functions throw SetupError.
class KernelNetwork {
 public:
  static KernelNetwork of(RtNetlink& kernel, const Link& link);

  [[nodiscard]] bool empty() const noexcept { return addresses_.empty() && routes_.empty(); }
  // Returns a text like "10.77.0.1/24, 10.78.0.1/24 and 2 routes".
  [[nodiscard]] std::string text() const;

  // Removes these addresses and routes from an interface, and skips those that the interface does not have.
  void erase(RtNetlink& kernel, const Link& at) const;
  // Adds these addresses and routes to an interface, and leaves those that it already has. Returns an error text for
  // each route that the kernel refuses, and leaves that route out.
  [[nodiscard]] std::vector<std::string> give(RtNetlink& kernel, const Link& to) const;

 private:
  using Payload = std::vector<uint8_t>;  // fixed part and attributes of a message
  void read_addresses(RtNetlink& kernel);
  void read_routes(RtNetlink& kernel);

  Link link_;
  std::vector<Payload> addresses_;
  std::vector<Payload> routes_;  // routes over a gateway are last: the kernel must already have a route to the gateway
};

}  // namespace gradlane
