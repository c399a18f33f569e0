// background.cc - other traffic during a measurement: bursts of TCP from each rank to the next (a thread of its own)
#include "tools/perf/background.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>

#include "base/entropy.h"
#include "base/error.h"
#include "tools/perf/trainer.h"

namespace gradlane {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kMeetingTime{10000};  // limit until all flows are connected
constexpr std::chrono::milliseconds kTokenTime{1000};     // limit until a new connection has sent its token
constexpr std::chrono::milliseconds kDrainTime{20000};
constexpr size_t kPiece = size_t{64} << 10;  // most bytes of one call of send() or recv()

[[noreturn]] void fail(const std::string& what, int fault) {
  throw PerfError(fmt::format("--background-load: {}: {}", what, std::strerror(fault)));
}

std::string address_text(uint32_t address) {
  const in_addr it{htonl(address)};
  char text[INET_ADDRSTRLEN] = "";
  return inet_ntop(AF_INET, &it, text, sizeof text) == nullptr ? "?" : text;
}

sockaddr_in socket_address(uint32_t address, uint16_t port) {
  sockaddr_in it{};
  it.sin_family = AF_INET;
  it.sin_port = htons(port);
  it.sin_addr.s_addr = htonl(address);
  return it;
}

bool ready(int fd, short events, Clock::duration at_most) {
  pollfd one{fd, events, 0};
  const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(at_most).count();
  return poll(&one, 1, static_cast<int>(std::max<int64_t>(wait, 0))) > 0;
}

FileDescriptor tcp_socket() {
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail("a socket", errno);
  return fd;
}

// Returns whether the first bytes from the peer are the token.
bool knows(int fd, uint64_t token) {
  uint64_t said = 0;
  if (!ready(fd, POLLIN, kTokenTime)) return false;
  return recv(fd, &said, sizeof said, 0) == sizeof said && said == token;
}

}  // namespace

uint32_t interface_address(const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw SetupError(fmt::format("network interfaces: {}", std::strerror(errno)));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* it = list; it != nullptr; it = it->ifa_next) {
    if (name != it->ifa_name || it->ifa_addr == nullptr || it->ifa_addr->sa_family != AF_INET) continue;
    if ((it->ifa_flags & IFF_UP) == 0) continue;
    sockaddr_in address{};
    std::memcpy(&address, it->ifa_addr, sizeof address);
    return ntohl(address.sin_addr.s_addr);
  }
  throw SetupError(fmt::format(
      "--interface '{}': no interface of this name is up and has an IPv4 address; 'ip address' lists all", name));
}

Background::Background(Trainer& trainer, const std::string& interface) : listener_(tcp_socket()) {
  const uint32_t own = interface_address(interface);
  sockaddr_in place = socket_address(own, 0);
  socklen_t length = sizeof place;
  auto* const generic = reinterpret_cast<sockaddr*>(&place);
  if (bind(listener_.get(), generic, length) != 0 || listen(listener_.get(), 2 * kFlows) != 0 ||
      getsockname(listener_.get(), generic, &length) != 0) {
    fail(fmt::format("listening on {} ({})", address_text(own), interface), errno);
  }
  bell_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell_) fail("an eventfd", errno);
  // The token distinguishes connections of ranks from those of other programs.
  const uint64_t token = random_bits();
  const std::array<int64_t, 2> here = {static_cast<int64_t>(uint64_t{own} << 16 | ntohs(place.sin_port)),
                                       static_cast<int64_t>(token)};
  const std::vector<int64_t> all = trainer.gather(here);
  const size_t next = (trainer.rank() + 1) % trainer.world();
  const uint64_t there = static_cast<uint64_t>(all[2 * next]);
  connect_all(static_cast<uint32_t>(there >> 16), static_cast<uint16_t>(there),
              static_cast<uint64_t>(all[2 * next + 1]));
  accept_all(token);
  thread_ = std::thread([this] { serve(); });
}

Background::~Background() {
  over_.store(true);
  const uint64_t one = 1;
  if (bell_) (void)!write(bell_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

void Background::connect_all(uint32_t address, uint16_t port, uint64_t token) {
  const Clock::time_point deadline = Clock::now() + kMeetingTime;
  const std::string what = fmt::format(
      "cannot connect to the next rank at {}:{}; all ranks must reach each other on this interface "
      "(choose another with --interface or GLOO_SOCKET_IFNAME)",
      address_text(address), port);
  const sockaddr_in place = socket_address(address, port);
  for (unsigned i = 0; i < kFlows; ++i) {
    FileDescriptor fd = tcp_socket();
    const bool at_once = connect(fd.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0;
    if (!at_once && errno != EINPROGRESS) fail(what, errno);
    if (!at_once && !ready(fd.get(), POLLOUT, deadline - Clock::now())) fail(what, ETIMEDOUT);
    int fault = 0;
    socklen_t length = sizeof fault;
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &fault, &length);
    if (fault != 0) fail(what, fault);
    if (send(fd.get(), &token, sizeof token, MSG_NOSIGNAL) != sizeof token) fail(what, errno);
    to_next_.push_back(std::move(fd));
  }
}

void Background::accept_all(uint64_t token) {
  const Clock::time_point deadline = Clock::now() + kMeetingTime;
  while (from_before_.size() < kFlows) {
    if (!ready(listener_.get(), POLLIN, deadline - Clock::now()))
      fail("the previous rank has not connected", ETIMEDOUT);
    FileDescriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd && knows(fd.get(), token)) from_before_.push_back(std::move(fd));
  }
  listener_.reset();
}

void Background::burst(uint64_t bytes) noexcept {
  wanted_.fetch_add(bytes);
  const uint64_t one = 1;
  (void)!write(bell_.get(), &one, sizeof one);
}

void Background::drain() const {
  const auto pending = [](const FileDescriptor& flow) {
    int bytes = 0;
    return ioctl(flow.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0;
  };
  const Clock::time_point deadline = Clock::now() + kDrainTime;
  while (sent_.load() < wanted_.load() || std::ranges::any_of(to_next_, pending)) {
    check();
    if (Clock::now() > deadline) fail("bursts of TCP do not arrive at the next rank", ETIMEDOUT);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Background::check() const {
  if (const int fault = fault_.load(); fault != 0) fail("a TCP connection to or from another rank has ended", fault);
}

void Background::serve() noexcept {
  static constexpr std::array<char, kPiece> kZeros{};
  std::vector<char> waste(kPiece);
  std::vector<pollfd> events(1 + 2 * size_t{kFlows});
  events[0] = {bell_.get(), POLLIN, 0};
  for (size_t i = 0; i < kFlows; ++i) {
    events[1 + i] = {to_next_[i].get(), 0, 0};
    events[1 + kFlows + i] = {from_before_[i].get(), POLLIN, 0};
  }
  const std::span all(events);
  uint64_t sent = 0;
  while (!over_.load() && fault_.load() == 0) {
    for (pollfd& each : all.subspan(1, kFlows)) each.events = sent < wanted_.load() ? POLLOUT : short{0};
    if (poll(events.data(), events.size(), -1) < 0 && errno != EINTR) fault_.store(errno);
    uint64_t rings = 0;
    if (events[0].revents != 0) (void)!read(bell_.get(), &rings, sizeof rings);
    for (const pollfd& each : all.subspan(1, kFlows)) {
      const uint64_t left = wanted_.load() - sent;
      if ((each.revents & (POLLERR | POLLHUP)) != 0) fault_.store(ECONNRESET);
      if ((each.revents & POLLOUT) == 0 || left == 0) continue;
      const ssize_t count = send(each.fd, kZeros.data(), std::min<uint64_t>(left, kPiece), MSG_NOSIGNAL);
      if (count > 0) sent += static_cast<uint64_t>(count);
      if (count < 0 && errno != EAGAIN && errno != EINTR) fault_.store(errno);
    }
    sent_.store(sent);
    for (const pollfd& each : all.subspan(1 + kFlows)) {
      if (each.revents == 0) continue;
      const ssize_t count = recv(each.fd, waste.data(), waste.size(), 0);
      if (count == 0) fault_.store(ECONNRESET);
      if (count < 0 && errno != EAGAIN && errno != EINTR) fault_.store(errno);
    }
  }
}

}  // namespace gradlane
