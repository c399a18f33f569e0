// interface.h - the network interface of point-to-point connections (any thread)
#pragma once

#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <climits>

namespace gradlane::nccl {

union Address {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

inline socklen_t bytes_of(const Address& address) {
  return address.any.sa_family == AF_INET6 ? sizeof(address.v6) : sizeof(address.v4);
}

struct Interface {
  char name[IFNAMSIZ];
  char pci_path[PATH_MAX];  // of its device in /sys; "": it has none
  Address address;
  int speed;  // Mb/s
};

// Returns the first interface that is up and that NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY allow. Prefers InfiniBand's
// ("ib..."), then others, then Docker's, then the loopback, then libvirt's. NCCL's own sockets do so without
// NCCL_SOCKET_IFNAME, too (ncclFindInterfaces() in src/misc/socket.cc), and also look at NCCL_COMM_ID. Returns NULL if
// there is none. It searches once, and again if there was none.
const Interface* find_interface();

}  // namespace gradlane::nccl
