// metrics_server.cc - the HTTP server that Prometheus, and `gradlane top` on other machines, query (control thread
// only)
#include "dataplane/watch/metrics_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "config/addresses.h"
#include "config/socket_address.h"

namespace gradlane {
namespace {

constexpr int kBacklog = 64;

[[noreturn]] void fail(const IpPort& address, int error) {
  const char* const advice = error == EADDRINUSE ? "; another program listens there: stop it, or choose another port"
                             : error == EADDRNOTAVAIL ? "; this machine has no such address"
                             : error == EACCES        ? "; only root may use ports below 1024"
                                                      : "";
  throw SetupError(
      fmt::format("metrics: cannot listen at {}: {}{}", address_text(address), std::strerror(error), advice));
}

FileDescriptor listen_at(const IpPort& address) {
  const SocketAddress to(address);
  const bool ipv4 = to.family() == AF_INET;
  FileDescriptor fd(socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  // SO_REUSEADDR is needed as connections of an earlier daemon may still be closing. [::] takes connections of IPv6
  // only.
  const bool ready = fd && setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                     (ipv4 || setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) == 0) &&
                     bind(fd.get(), to.get(), to.bytes()) == 0 && listen(fd.get(), kBacklog) == 0;
  if (!ready) fail(address, errno);
  return fd;
}

}  // namespace

MetricsServer::MetricsServer(const IpPort& address, Types types, Source source)
    : MetricsServer(listen_at(address), nullptr, std::move(types), std::move(source)) {}

MetricsServer::MetricsServer(const std::string& path, Types types, Source source)
    : MetricsServer({}, std::make_unique<ListeningSocket>(path, ListeningSocket::Kind::kStream, "metrics"),
                    std::move(types), std::move(source)) {
  file_->open();
}

MetricsServer::MetricsServer(FileDescriptor tcp, std::unique_ptr<ListeningSocket> file, Types types, Source source)
    : types_(std::move(types)),
      source_(std::move(source)),
      tcp_(std::move(tcp)),
      file_(std::move(file)),
      server_(
          file_ != nullptr ? file_->fd() : tcp_.get(),
          {.name = "the metrics' socket",
           .most_request = kMostHttpRequest,
           .answer = [this](const ClientServer::Request& request) { return answer(request.so_far, request.sender); },
           .timeout = ""}) {}

void MetricsServer::step(Clock::time_point now) {
  now_ = now;
  server_.step(now);
}

uint16_t MetricsServer::port() const {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof(storage);
  if (getsockname(tcp_.get(), reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) return 0;
  sockaddr_in address{};  // both address types have the port at the same offset
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  std::memcpy(&address, &storage, sizeof(address));
  return ntohs(address.sin_port);
}

const std::string& MetricsServer::document(HttpDocument which) {
  Document& it = documents_.at(static_cast<size_t>(which));
  if (!it.there || now_ - it.made >= kFresh) it = {source_(which), now_, true};
  return it.text;
}

std::optional<ServerAnswer> MetricsServer::answer(std::string_view so_far, ClientServer::Sender sender) {
  const auto request = parse_http_request(so_far, sender == ClientServer::Sender::kOpen);
  if (!request) return std::nullopt;
  const std::string_view text = request->status == 200 ? document(request->document) : std::string_view();
  return ServerAnswer{http_response(*request, types_.at(static_cast<size_t>(request->document)), text), {}};
}

}  // namespace gradlane
