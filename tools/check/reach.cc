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

// A little longer than the kernel asks for a host's MAC address.
constexpr milliseconds kReachTime{3500};
// A host sends only about one "port closed" message per second to another host, for whichever packet comes first.
// Usually this is a hello of the daemon, unless this check sends more packets than the daemon.
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

struct Way {
  FileDescriptor socket{-1};
  Reach reach = Reach::kNoError;
};

void note(Way& way, int error) {
  switch (error) {
    case ECONNREFUSED:
      way.reach = Reach::kRefused;
      break;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
      way.reach = Reach::kUnreachable;
      break;
    case EPERM:
    case EACCES:
      way.reach = Reach::kForbidden;
      break;
    default:
      break;
  }
}

void open(Way& way, const IpAddress* from, const Endpoint& to) {
  const Address local = from != nullptr ? address_of({*from, 0}) : Address(nullptr, &freeaddrinfo);
  const Address remote = address_of(to);
  if (!remote) return;
  way.socket = FileDescriptor(socket(remote->ai_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Without this option, the socket does not get errors from routers, nor the error that a host of the own network does
  // not answer.
  const int on = 1;
  const bool of_ipv6 = remote->ai_family == AF_INET6;
  (void)setsockopt(way.socket.get(), of_ipv6 ? IPPROTO_IPV6 : IPPROTO_IP, of_ipv6 ? IPV6_RECVERR : IP_RECVERR, &on,
                   sizeof(on));
  if ((local && bind(way.socket.get(), local->ai_addr, local->ai_addrlen) != 0) ||
      connect(way.socket.get(), remote->ai_addr, remote->ai_addrlen) != 0) {
    note(way, errno);
  }
}

void send_one(Way& way) {
  const char nothing = 0;
  if (send(way.socket.get(), &nothing, 1, MSG_NOSIGNAL) < 0) note(way, errno);
}

void look(Way& way) {
  if (way.reach != Reach::kNoError) return;
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (getsockopt(way.socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) == 0) note(way, error);
}

}  // namespace

std::vector<Reach> reach(const IpAddress* from, std::span<const Endpoint> to) {
  std::vector<Way> ways(to.size());
  for (size_t i = 0; i < to.size(); ++i) open(ways[i], from, to[i]);
  const auto open_ones = [&ways] {
    return std::ranges::any_of(ways, [](const Way& it) { return it.reach == Reach::kNoError; });
  };
  const auto end = Clock::now() + kReachTime;
  for (size_t next = 0; open_ones() && Clock::now() < end; poll(nullptr, 0, kReachTick.count())) {
    for (Way& way : ways) look(way);
    for (size_t i = 0; i < std::min(kReachAtOnce, ways.size()); ++i) {
      Way& way = ways[next++ % ways.size()];
      if (way.reach == Reach::kNoError) send_one(way);
    }
  }
  std::vector<Reach> all;
  std::ranges::transform(ways, std::back_inserter(all), &Way::reach);
  return all;
}

}  // namespace gradlane
