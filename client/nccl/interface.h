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

// Returns the interface that NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY name. Without them, returns the first one that
// is up, and prefers others to those of Docker, these to the loopback, and these to libvirt's, as NCCL's own sockets
// do. Returns NULL if there is none. It searches once, and again if there was none.
const Interface* find_interface();

}  // namespace gradlane::nccl
