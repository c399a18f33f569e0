// metrics_server.cc - where Prometheus asks a running node: HTTP, /metrics (control thread only)
#include "dataplane/watch/metrics_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "config/addresses.h"
#include "dataplane/watch/http_request.h"

namespace gradlane {
namespace {

constexpr int kBacklog = 64;

[[noreturn]] void fail(const IpPort& address, int error) {
  const char* const advice = error == EADDRINUSE      ? "; another program listens there: stop it, or take another port"
                             : error == EADDRNOTAVAIL ? "; this machine has no such address"
                             : error == EACCES        ? "; ports below 1024 are root's"
                                                      : "";
  throw SetupError(
      fmt::format("metrics: cannot listen at {}: {}{}", address_text(address), std::strerror(error), advice));
}

FileDescriptor listen_at(const IpPort& address) {
  const auto ipv4 = ipv4_of(address.ip);
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  if (ipv4) {
    sockaddr_in of_ipv4{};
    of_ipv4.sin_family = AF_INET;
    of_ipv4.sin_port = htons(address.port);
    of_ipv4.sin_addr.s_addr = htonl(*ipv4);
    bytes = sizeof(of_ipv4);
    std::memcpy(&storage, &of_ipv4, bytes);
  } else {
    sockaddr_in6 of_ipv6{};
    of_ipv6.sin6_family = AF_INET6;
    of_ipv6.sin6_port = htons(address.port);
    std::memcpy(&of_ipv6.sin6_addr, address.ip.data(), address.ip.size());
    bytes = sizeof(of_ipv6);
    std::memcpy(&storage, &of_ipv6, bytes);
  }
  FileDescriptor fd(socket(ipv4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  // Connections of before may still be ending. [::] is all of IPv6, and of IPv4 nothing.
  const bool ready = fd && setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                     (ipv4 || setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) == 0) &&
                     bind(fd.get(), reinterpret_cast<const sockaddr*>(&storage), bytes) == 0 &&
                     listen(fd.get(), kBacklog) == 0;
  if (!ready) fail(address, errno);
  return fd;
}

}  // namespace

MetricsServer::MetricsServer(const IpPort& address, std::array<std::string, 2> types, Source source)
    : types_(std::move(types)),
      source_(std::move(source)),
      listener_(listen_at(address)),
      server_(listener_.get(), {.name = "the metrics' socket",
                                .most_request = kMostHttpRequest,
                                .answer = [this](std::string_view so_far,
                                                 ClientServer::Sender sender) { return answer(so_far, sender); },
                                .timeout = ""}) {}

void MetricsServer::step(Clock::time_point now) {
  now_ = now;
  server_.step(now);
}

uint16_t MetricsServer::port() const {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof(storage);
  if (getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) return 0;
  sockaddr_in address{};  // the port is at the same place in both
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  std::memcpy(&address, &storage, sizeof(address));
  return ntohs(address.sin_port);
}

const std::string& MetricsServer::document(bool open_metrics) {
  Document& it = documents_.at(open_metrics ? 1 : 0);
  if (!it.there || now_ - it.made >= kFresh) it = {source_(open_metrics), now_, true};
  return it.text;
}

std::optional<ServerAnswer> MetricsServer::answer(std::string_view so_far, ClientServer::Sender sender) {
  const auto request = parse_http_request(so_far, sender == ClientServer::Sender::kOpen);
  if (!request) return std::nullopt;
  const std::string_view text = request->status == 200 ? document(request->open_metrics) : std::string_view();
  return ServerAnswer{http_response(*request, types_.at(request->open_metrics ? 1 : 0), text), {}};
}

}  // namespace gradlane
