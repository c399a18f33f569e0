// supervisor.cc - notifications to systemd (control thread only)
#include "dataplane/daemon/supervisor.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace gradlane {
namespace {

constexpr int kFeeds = 4;  // notifications per interval of the watchdog, at most

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::optional<uint64_t> number(const char* name) {
  const std::string_view text = variable(name);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Connects to the socket "/path", or "@name" for an abstract one. On failure it returns a descriptor that is not open,
// and sets errno.
FileDescriptor connected(std::string_view name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  errno = EINVAL;
  if (name.size() >= sizeof address.sun_path) return FileDescriptor{};
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name.front() == '@') address.sun_path[0] = '\0';
  FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  if (!socket || connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return FileDescriptor{};
  }
  return socket;
}

}  // namespace

Supervisor::Supervisor() {
  const std::string_view name = variable("NOTIFY_SOCKET");
  if (name.empty()) return;
  socket_ = connected(name);
  if (!socket_) {
    spdlog::warn("NOTIFY_SOCKET={}: {}: the service manager gets no notifications", name, std::strerror(errno));
    return;
  }
  const std::optional<uint64_t> process = number("WATCHDOG_PID");
  const std::optional<uint64_t> interval = number("WATCHDOG_USEC");
  if (interval && *interval != 0 && (!process || *process == static_cast<uint64_t>(getpid()))) {
    watchdog_ = std::chrono::microseconds(*interval);
  }
}

void Supervisor::ready() {
  told_ready_ = tell("READY=1");
  fed_ = Clock::now();
}

void Supervisor::stopping() {
  if (told_stopping_) return;
  told_stopping_ = tell("STOPPING=1");
  watchdog_.reset();  // systemd does not wait for it any more either
}

void Supervisor::status(const std::string& text) {
  if (text != status_ && tell("STATUS=" + text)) status_ = text;
}

void Supervisor::look(std::span<const uint64_t> rounds, Clock::time_point now) {
  if (!told_ready_) told_ready_ = tell("READY=1");
  if (!watchdog_ || now - fed_ < *watchdog_ / kFeeds) return;
  rounds_.resize(rounds.size());
  if (!std::ranges::equal(rounds, rounds_, std::ranges::not_equal_to{})) {
    if (now - fed_ >= *watchdog_ / 2) complain(rounds, now - fed_);
    return;
  }
  if (complained_) spdlog::warn("all workers respond again");
  complained_ = false;
  tell("WATCHDOG=1");
  fed_ = now;
  rounds_.assign(rounds.begin(), rounds.end());
}

void Supervisor::complain(std::span<const uint64_t> rounds, Clock::duration since) {
  if (complained_) return;
  complained_ = true;
  const auto worker = std::ranges::mismatch(rounds, rounds_, std::ranges::not_equal_to{}).in1 - rounds.begin();
  spdlog::error(
      "worker {} has not responded for {} ms: the service manager ends this process if this continues (watchdog)",
      worker, std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

bool Supervisor::tell(const std::string& text) {
  if (!socket_ || send(socket_.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
  if (!warned_) spdlog::warn("cannot send {} to the service manager: {}", text, std::strerror(errno));
  warned_ = true;
  return false;
}

}  // namespace gradlane
