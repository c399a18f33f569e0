// ports.cc - ports of the loopback interface that are free now (main thread)
#include "tools/run/ports.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/file_descriptor.h"

namespace gradlane {
namespace {

bool is_free_udp_port(unsigned port) {
  const FileDescriptor fd(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  address.sin6_port = htons(static_cast<uint16_t>(port));
  return fd && bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

}  // namespace

unsigned free_port() {
  const FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (!fd || bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw SetupError(fmt::format("no free TCP port on 127.0.0.1: {}", std::strerror(errno)));
  }
  return ntohs(address.sin_port);
}

bool are_free_udp_ports(unsigned first, unsigned count) {
  for (unsigned port = first; port < first + count; ++port) {
    if (!is_free_udp_port(port)) return false;
  }
  return true;
}

}  // namespace gradlane
