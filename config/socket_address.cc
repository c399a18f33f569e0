// socket_address.cc - an address and a port in the form that the kernel needs (any thread)
#include "config/socket_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "config/addresses.h"

namespace gradlane {

SocketAddress::SocketAddress(const IpPort& address) noexcept {
  if (const auto ipv4 = ipv4_of(address.ip)) {
    sockaddr_in of_ipv4{};
    of_ipv4.sin_family = AF_INET;
    of_ipv4.sin_port = htons(address.port);
    of_ipv4.sin_addr.s_addr = htonl(*ipv4);
    bytes_ = sizeof(of_ipv4);
    std::memcpy(&storage_, &of_ipv4, bytes_);
  } else {
    sockaddr_in6 of_ipv6{};
    of_ipv6.sin6_family = AF_INET6;
    of_ipv6.sin6_port = htons(address.port);
    std::memcpy(&of_ipv6.sin6_addr, address.ip.data(), address.ip.size());
    bytes_ = sizeof(of_ipv6);
    std::memcpy(&storage_, &of_ipv6, bytes_);
  }
}

}  // namespace gradlane
