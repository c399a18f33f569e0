// rtnetlink.h - network interfaces of the kernel: reads, makes and changes them as ip(8) does (main thread only)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/kernel/netlink.h"

namespace gradlane {

struct Link {
  unsigned index = 0;
  std::string name;
  unsigned flags = 0;  // IFF_...
  size_t mtu = 0;
  unsigned master = 0;  // index of the bridge or bond to which the interface belongs; 0 if none
  std::vector<uint8_t> address;
  std::string alias;
};

// Reads and changes the interfaces in the network namespace of this process. All functions throw SetupError, which says
// what was tried and why it failed.
class RtNetlink {
 public:
  RtNetlink();

  // Returns the interface of that name, or nothing if there is none.
  [[nodiscard]] std::optional<Link> find(const std::string& name);
  void add_veth(const std::string& name, const std::string& peer, size_t mtu, const std::vector<uint8_t>& address);
  void set_flag(const Link& link, unsigned flag, bool on);  // `flag` is IFF_UP or IFF_PROMISC
  void set_mtu(const Link& link, size_t mtu);
  void set_alias(const Link& link, const std::string& alias);
  void set_address(const Link& link, const std::vector<uint8_t>& address);
  void remove(const Link& link);

  // Sends any other request for a change. Throws a SetupError whose text begins with `what` if it fails. Error numbers
  // in `fine` are ignored.
  void change(NetlinkMessage message, const std::string& what, const std::vector<int>& fine = {});
  // Calls `visit` for each entry that the kernel lists.
  void list(NetlinkMessage message, const NetlinkSocket::Visit& visit);

 private:
  NetlinkSocket socket_;
};

}  // namespace gradlane
