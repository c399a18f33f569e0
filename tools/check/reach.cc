// reach.cc - connected sockets, which get ICMP messages as errors (main thread only)
#include "tools/check/reach.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>

#include "base/file_descriptor.h"
#include "config/addresses.h"

namespace gradlane {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Time limit of reach(): a little longer than the kernel tries to find a host's MAC address.
constexpr milliseconds kReachTime{3500};
// Interval between groups of packets. A host sends only about one "port closed" message per second to another host, for
// whichever packet arrives first. Usually this packet is a hello of the daemon, unless this check sends more packets
// than the daemon.
constexpr milliseconds kReachTick{5};
constexpr size_t kReachAtOnce = 16;  // packets in a tick

using Address = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
Address address_of(const Endpoint& endpoint) {
  const std::string ip = ip_text(endpoint.ip);
  const std::string port = std::to_string(endpoint.port);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(ip.c_str(), port.c_str(), &hints, &found) != 0) found = nullptr;
  return {found, &freeaddrinfo};
}

struct Destination {
  FileDescriptor socket{-1};
  Reach reach = Reach::kNoError;
};

void note(Destination& destination, int error) {
  switch (error) {
    case ECONNREFUSED:
      destination.reach = Reach::kRefused;
      break;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
      destination.reach = Reach::kUnreachable;
      break;
    case EPERM:
    case EACCES:
      destination.reach = Reach::kForbidden;
      break;
    default:
      break;
  }
}

void open(Destination& destination, const IpAddress* from, const Endpoint& to) {
  const Address local = from != nullptr ? address_of({*from, 0}) : Address(nullptr, &freeaddrinfo);
  const Address remote = address_of(to);
  if (!remote) return;
  destination.socket = FileDescriptor(socket(remote->ai_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Without this option, the socket does not get errors from routers, nor the error that a host of the own network does
  // not answer.
  const int on = 1;
  const bool of_ipv6 = remote->ai_family == AF_INET6;
  (void)setsockopt(destination.socket.get(), of_ipv6 ? IPPROTO_IPV6 : IPPROTO_IP, of_ipv6 ? IPV6_RECVERR : IP_RECVERR,
                   &on, sizeof(on));
  if ((local && bind(destination.socket.get(), local->ai_addr, local->ai_addrlen) != 0) ||
      connect(destination.socket.get(), remote->ai_addr, remote->ai_addrlen) != 0) {
    note(destination, errno);
  }
}

void send_one(Destination& destination) {
  const char nothing = 0;
  if (send(destination.socket.get(), &nothing, 1, MSG_NOSIGNAL) < 0) note(destination, errno);
}

void look(Destination& destination) {
  if (destination.reach != Reach::kNoError) return;
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (getsockopt(destination.socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) == 0) note(destination, error);
}

}  // namespace

std::vector<Reach> reach(const IpAddress* from, std::span<const Endpoint> to) {
  std::vector<Destination> destinations(to.size());
  for (size_t i = 0; i < to.size(); ++i) open(destinations[i], from, to[i]);
  const auto open_ones = [&destinations] {
    return std::ranges::any_of(destinations, [](const Destination& it) { return it.reach == Reach::kNoError; });
  };
  const auto end = Clock::now() + kReachTime;
  for (size_t next = 0; open_ones() && Clock::now() < end; poll(nullptr, 0, kReachTick.count())) {
    for (Destination& destination : destinations) look(destination);
    for (size_t i = 0; i < std::min(kReachAtOnce, destinations.size()); ++i) {
      Destination& destination = destinations[next++ % destinations.size()];
      if (destination.reach == Reach::kNoError) send_one(destination);
    }
  }
  std::vector<Reach> all;
  std::ranges::transform(destinations, std::back_inserter(all), &Destination::reach);
  return all;
}

}  // namespace gradlane
