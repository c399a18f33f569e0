// http_client.cc - HTTP client for documents of daemons on other hosts; it does not trust what answers (one thread)
#include "tools/admin/http_client.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "config/addresses.h"
#include "config/socket_address.h"
#include "tools/admin/http_response.h"
#include "tools/hosts/machine.h"

namespace gradlane {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kSlice{100};  // interval at which `stop` is checked
constexpr const char* kNoDaemon = "the answer does not come from gradlaned";

struct Deadline {
  Clock::time_point end;
  milliseconds patience;  // whole time of the call, for messages
  const std::stop_token& stop;
};

// Waits until the socket is ready. Throws SetupError when the time is up.
void wait_for(int fd, short events, const Deadline& deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline.end - Clock::now());
    if (left.count() <= 0 || deadline.stop.stop_requested()) {
      throw SetupError(fmt::format("no answer within {} ms", deadline.patience.count()));
    }
    pollfd watched{fd, events, 0};
    if (poll(&watched, 1, static_cast<int>(std::min(left, kSlice).count())) > 0) return;
  }
}

FileDescriptor connect_to(const IpPort& address, const Deadline& deadline) {
  const SocketAddress to(address);
  FileDescriptor fd(socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw SetupError(std::strerror(errno));
  if (connect(fd.get(), to.get(), to.bytes()) == 0) return fd;
  if (errno != EINPROGRESS) throw SetupError(std::strerror(errno));
  wait_for(fd.get(), POLLOUT, deadline);
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  if (error != 0) throw SetupError(std::strerror(error));
  return fd;
}

// Returns whether the body is complete. `ended`: the peer sends no more. Throws SetupError if this is no document, or
// cannot become one.
bool is_whole(std::string_view text, bool ended, std::optional<HttpResponse>& response) {
  if (!response) response = parse_http_response(text, !ended);
  if (!response) return false;
  if (response->status == 404) throw SetupError("it is too old, or not gradlaned: it has no /stats");
  if (response->status != 200) throw SetupError(kNoDaemon);
  const size_t body = text.size() - response->body;
  if (std::max(body, response->length.value_or(0)) > HttpClient::kMostBody) throw SetupError("its answer is too long");
  if (response->length && body >= *response->length) return true;
  if (ended && response->length) throw SetupError("its answer is incomplete");
  return ended;
}

// Sends the request, and returns the body of the answer.
std::string get_from(const IpPort& address, const std::string& request, const Deadline& deadline) {
  const FileDescriptor fd = connect_to(address, deadline);
  // The request is shorter than any socket's buffer.
  if (send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) {
    throw SetupError(std::strerror(errno));
  }
  std::string text;
  std::array<char, 16384> bytes;
  std::optional<HttpResponse> response;
  for (;;) {
    wait_for(fd.get(), POLLIN, deadline);
    const ssize_t got = recv(fd.get(), bytes.data(), bytes.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) throw SetupError(std::strerror(errno));
    text.append(bytes.data(), static_cast<size_t>(got));
    if (is_whole(text, got == 0, response)) {
      return text.substr(response->body, response->length.value_or(std::string::npos));
    }
  }
}

}  // namespace

HttpClient::HttpClient(std::string host, uint16_t port)
    : host_(std::move(host)),
      port_(port),
      place_(host_.find(':') == std::string::npos ? fmt::format("{}:{}", host_, port)
                                                  : fmt::format("[{}]:{}", host_, port)) {}

std::string HttpClient::get(const std::string& path, milliseconds patience, const std::stop_token& stop) {
  if (ips_.empty()) ips_ = look_up({{.name = host_, .port = port_}}, "its name").front().ips;
  const std::string request =
      fmt::format("GET {} HTTP/1.0\r\nHost: {}\r\nAccept: application/json\r\n\r\n", path, place_);
  const auto end = Clock::now() + patience;
  std::string why;
  for (size_t i = 0; i < ips_.size(); ++i) {
    // The addresses after this one need a share of the time, too.
    const auto share = (end - Clock::now()) / static_cast<int>(ips_.size() - i);
    try {
      return get_from({ips_[i], port_}, request, {Clock::now() + share, patience, stop});
    } catch (const SetupError& error) {
      why = error.what();
    }
  }
  ips_.clear();  // the host may get another address
  throw SetupError(why);
}

}  // namespace gradlane
