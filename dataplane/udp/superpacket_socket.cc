// superpacket_socket.cc - sendmsg() and recvmsg() with their control messages (worker thread only; no DPDK)
#include "dataplane/udp/superpacket_socket.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "config/addresses.h"
#include "config/values.h"
#include "dataplane/udp/socket_sizes.h"

namespace gradlane {
namespace {

bool set(int socket, int level, int option, int value) noexcept {
  return setsockopt(socket, level, option, &value, sizeof(value)) == 0;
}

// A socket address in the kernel's form.
union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

// Writes the endpoint in the kernel's form, and returns the length.
socklen_t write_address(const Endpoint& endpoint, SocketAddress& address) noexcept {
  address.v6 = {};
  if (const auto ip = ipv4_of(endpoint.ip)) {
    address.v4.sin_family = AF_INET;
    address.v4.sin_port = htons(endpoint.port);
    address.v4.sin_addr.s_addr = htonl(*ip);
    return sizeof(address.v4);
  }
  address.v6.sin6_family = AF_INET6;
  address.v6.sin6_port = htons(endpoint.port);
  std::memcpy(&address.v6.sin6_addr, endpoint.ip.data(), endpoint.ip.size());
  return sizeof(address.v6);
}

Endpoint endpoint_of(const SocketAddress& address) noexcept {
  if (address.any.sa_family == AF_INET) {
    return {ip_address(ntohl(address.v4.sin_addr.s_addr)), ntohs(address.v4.sin_port)};
  }
  Endpoint endpoint{{}, ntohs(address.v6.sin6_port)};
  std::memcpy(endpoint.ip.data(), &address.v6.sin6_addr, endpoint.ip.size());
  return endpoint;
}

// Sets the options of the socket. The kernel does not fragment packets and ignores what it knows of path MTUs. It
// refuses packets that are longer than the device can take.
bool prepare(int fd, bool of_ipv6) noexcept {
  if (!of_ipv6) return set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE) && set(fd, IPPROTO_IP, IP_RECVTOS, 1);
  return set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) && set(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE) &&
         set(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
}

template <class T>
void put(msghdr& message, int level, int type, T value) noexcept {
  auto* const header = reinterpret_cast<cmsghdr*>(static_cast<uint8_t*>(message.msg_control) + message.msg_controllen);
  header->cmsg_level = level;
  header->cmsg_type = type;
  header->cmsg_len = CMSG_LEN(sizeof(T));
  std::memcpy(CMSG_DATA(header), &value, sizeof(T));
  message.msg_controllen += CMSG_SPACE(sizeof(T));
}

int int_in(const cmsghdr& header) noexcept {
  int value = 0;
  std::memcpy(&value, CMSG_DATA(&header), sizeof(value));
  return value;
}

}  // namespace

std::string endpoint_text(const Endpoint& endpoint) {
  const bool of_ipv6 = !ipv4_of(endpoint.ip);
  return fmt::format("{}{}{}:{}", of_ipv6 ? "[" : "", ip_text(endpoint.ip), of_ipv6 ? "]" : "", endpoint.port);
}

SuperpacketSocket::SuperpacketSocket(const Endpoint& local, size_t receive_bytes, bool any)
    : of_ipv6_(!ipv4_of(local.ip)) {
  socket_ =
      FileDescriptor(socket(of_ipv6_ ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP));
  const int fd = socket_.get();
  if (fd < 0 || !prepare(fd, of_ipv6_))
    throw SetupError(fmt::format("cannot make a UDP socket: {}", std::strerror(errno)));
  const Endpoint bound{!any ? local.ip : of_ipv6_ ? IpAddress{} : ip_address(0), local.port};
  SocketAddress address;
  const socklen_t length = write_address(bound, address);
  if (bind(fd, &address.any, length) != 0) {
    const int error = errno;
    const char* const hint =
        error == EADDRINUSE ? ": another daemon or job uses this port; see `udp_port`"
        : error == EADDRNOTAVAIL
            ? ": this machine has no such address; see `rank` and `nodes`, or set `udp: any` behind a NAT"
            : "";
    throw SetupError(fmt::format("UDP {}: {}{}", endpoint_text(bound), std::strerror(error), hint),
                     error == EADDRINUSE ? SetupFault::kPortInUse : SetupFault::kOther);
  }
  superpackets_ = set(fd, IPPROTO_UDP, UDP_SEGMENT, 0);
  (void)set(fd, IPPROTO_UDP, UDP_GRO, 1);  // without UDP_GRO, packets come one by one
  (void)set(fd, SOL_SOCKET, SO_SNDBUF, static_cast<int>(kSocketSendBytes));
  // A privileged process gets more than net.core.rmem_max.
  const int wanted = static_cast<int>(receive_bytes);
  if (!set(fd, SOL_SOCKET, SO_RCVBUFFORCE, wanted)) (void)set(fd, SOL_SOCKET, SO_RCVBUF, wanted);
  int granted = 0;
  socklen_t bytes = sizeof(granted);
  (void)getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &granted, &bytes);
  receive_bytes_ = static_cast<size_t>(granted) / 2;  // the kernel doubles the value, for its own data about packets
}

SuperpacketSocket::Arrival SuperpacketSocket::receive(iovec* room, size_t parts) noexcept {
  SocketAddress from{};
  alignas(cmsghdr) uint8_t control[2 * CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof(from);
  message.msg_iov = room;
  message.msg_iovlen = parts;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t bytes = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  if (bytes < 0) return {};
  Arrival arrival;
  arrival.came = true;
  arrival.bytes = arrival.each = static_cast<size_t>(bytes);
  arrival.from = endpoint_of(from);
  arrival.cut = (message.msg_flags & MSG_TRUNC) != 0;
  for (cmsghdr* it = CMSG_FIRSTHDR(&message); it != nullptr; it = CMSG_NXTHDR(&message, it)) {
    if (it->cmsg_level == IPPROTO_IP && it->cmsg_type == IP_TOS) arrival.tos = *CMSG_DATA(it);
    if (it->cmsg_level == IPPROTO_IPV6 && it->cmsg_type == IPV6_TCLASS) {
      arrival.tos = static_cast<uint8_t>(int_in(*it));
    }
    if (it->cmsg_level == IPPROTO_UDP && it->cmsg_type == UDP_GRO) {
      const auto each = static_cast<size_t>(int_in(*it));
      if (each != 0) arrival.each = each;
    }
  }
  return arrival;
}

SuperpacketSocket::Sent SuperpacketSocket::send(const Endpoint& to, uint8_t tos, iovec* iovecs, size_t count,
                                                size_t each) noexcept {
  if (each != 0 && !superpackets_) return Sent::kSingly;
  SocketAddress address;
  alignas(cmsghdr) uint8_t control[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint16_t))] = {};
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = write_address(to, address);
  message.msg_iov = iovecs;
  message.msg_iovlen = count;
  message.msg_control = control;
  of_ipv6_ ? put(message, IPPROTO_IPV6, IPV6_TCLASS, int{tos}) : put(message, IPPROTO_IP, IP_TOS, int{tos});
  if (each != 0) put(message, IPPROTO_UDP, UDP_SEGMENT, static_cast<uint16_t>(each));
  if (sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Sent::kYes;
  switch (errno) {
    case EAGAIN:
    case ENOBUFS:
    case ENOMEM:
    case EINTR:
      return Sent::kLater;
    case EMSGSIZE:
      return Sent::kTooLong;
    case EIO:
    case EINVAL:
    case ENOPROTOOPT:
    case EOPNOTSUPP:
      return each != 0 ? Sent::kSingly : Sent::kLost;
    default:
      return Sent::kLost;
  }
}

}  // namespace gradlane
