// server.cc - the Unix socket of a node: accepts trainers, steps their sessions, and removes those that have gone
// (control thread only)
#include "dataplane/trainer/server.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/listening_socket.h"
#include "dataplane/trainer/log_limiter.h"
#include "dataplane/trainer/session.h"

namespace gradlane {
namespace {

// Limits of one step.
constexpr size_t kEventsPerStep = 32;
constexpr int kAcceptsPerStep = 16;
constexpr size_t kFillPerStep = size_t{32} << 20;  // about 10 ms
constexpr size_t kLeastFill = size_t{2} << 20;     // a huge page

// Limit for sessions: trainers of the node, connections that have not sent HELLO, and trainers that are being detached.
constexpr size_t kMaxSessions = 64;
static_assert(kMaxSessions > 2 * kMaxTrainers);

constexpr Nanos kAcceptPause = 100 * kMillisecond;

std::string cannot_watch() { return std::string("cannot watch a socket: ") + std::strerror(errno); }

epoll_event event_of(uint32_t events, void* whom) noexcept { return {.events = events, .data = {.ptr = whom}}; }

FileDescriptor checked(int fd, const char* what) {
  if (fd < 0) throw SetupError(std::string("cannot make an ") + what + ": " + std::strerror(errno));
  return FileDescriptor(fd);
}

}  // namespace

class ServerState {
 public:
  ServerState(const NodeConfig& config, const ServerLanes& lanes);

  void open();
  void step(Nanos now);
  void close(const std::string& text, Nanos now);

  [[nodiscard]] int fd() const noexcept { return epoll_.get(); }
  [[nodiscard]] bool finished() const noexcept { return closing_ && sessions_.empty(); }
  [[nodiscard]] bool busy() const noexcept {
    return std::any_of(sessions_.begin(), sessions_.end(), [](const auto& session) { return session->busy(); });
  }
  [[nodiscard]] unsigned attached() const noexcept {
    return static_cast<unsigned>(
        std::count_if(sessions_.begin(), sessions_.end(), [](const auto& session) { return session->attached(); }));
  }
  [[nodiscard]] std::vector<SessionReports> reports() const {
    std::vector<SessionReports> all;
    for (const auto& session : sessions_) {
      if (session->attached()) all.push_back(session->reports());
    }
    return all;
  }

 private:
  void watch(int operation, int fd, uint32_t events, void* whom) const;
  void accept_some(Nanos now);
  void pause_accepting(Nanos now);
  void add(SharedSocket socket, Nanos now);
  void make_room();
  void step_sessions(Nanos now);

  const NodeConfig config_;
  FileDescriptor epoll_;
  ListeningSocket listener_;
  // An eventfd that is always readable. It is watched while memory is being allocated, so that fd() is readable and
  // step() is called again at once.
  FileDescriptor again_;
  bool watches_again_ = false;
  Slots slots_;
  const CandidatePredictor planning_;
  const PacketRoom packets_;
  LogLimiter log_;
  std::vector<std::unique_ptr<Session>> sessions_;  // in order of arrival
  std::optional<Nanos> accept_again_;
  bool cannot_accept_ = false;
  bool closing_ = false;
};

ServerState::ServerState(const NodeConfig& config, const ServerLanes& lanes)
    : config_(config),
      epoll_(checked(epoll_create1(EPOLL_CLOEXEC), "epoll instance")),
      listener_(config.socket),
      again_(checked(eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd")),
      slots_(config_, lanes.channels, lanes.doorbells),
      planning_(config_, lanes.mbps),
      packets_(lanes.packets) {
  watch(EPOLL_CTL_ADD, again_.get(), 0, &again_);
}

void ServerState::open() {
  listener_.open();
  if (!listener_.add_to(epoll_.get(), event_of(EPOLLIN, &listener_))) throw SetupError(cannot_watch());
}

void ServerState::watch(int operation, int fd, uint32_t events, void* whom) const {
  epoll_event event = event_of(events, whom);
  if (epoll_ctl(epoll_.get(), operation, fd, &event) != 0) throw SetupError(cannot_watch());
}

void ServerState::step(Nanos now) {
  log_.step(now);
  slots_.look();
  std::array<epoll_event, kEventsPerStep> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  // Sessions are removed only below, so all sessions in these events exist.
  for (int i = 0; i < count; ++i) {
    void* const whom = events[static_cast<size_t>(i)].data.ptr;
    if (whom == &listener_) {
      accept_some(now);
    } else if (whom != &again_) {
      static_cast<Session*>(whom)->receive(now);
    }
  }
  if (accept_again_ && now >= *accept_again_ && !closing_) {
    accept_again_.reset();
    watch(EPOLL_CTL_MOD, listener_.fd(), EPOLLIN, &listener_);
  }
  step_sessions(now);
}

void ServerState::step_sessions(Nanos now) {
  const auto filling = [this] {
    return static_cast<size_t>(
        std::count_if(sessions_.begin(), sessions_.end(), [](const auto& session) { return session->filling(); }));
  };
  const size_t fill = std::max(kFillPerStep / std::max<size_t>(filling(), 1), kLeastFill);
  for (const auto& session : sessions_) session->step(now, fill);
  std::erase_if(sessions_, [](const auto& session) { return session->gone(); });
  const bool again = filling() != 0;
  if (again == watches_again_) return;
  watch(EPOLL_CTL_MOD, again_.get(), again ? uint32_t{EPOLLIN} : 0, &again_);
  watches_again_ = again;
}

void ServerState::accept_some(Nanos now) {
  for (int i = 0; i < kAcceptsPerStep; ++i) {
    if (SharedFile::too_many()) return pause_accepting(now);
    SharedSocket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      cannot_accept_ = false;
      add(std::move(socket), now);
      continue;
    }
    if (errno == ECONNABORTED || errno == EINTR) continue;
    if (errno != EAGAIN) {
      // File descriptors may have run out, for example.
      if (!cannot_accept_) {
        log_.log(spdlog::level::warn, "cannot accept trainers on " + config_.socket + ": " + std::strerror(errno));
      }
      cannot_accept_ = true;
      pause_accepting(now);
    }
    return;
  }
}

// Stops watching the listening socket for kAcceptPause.
void ServerState::pause_accepting(Nanos now) {
  watch(EPOLL_CTL_MOD, listener_.fd(), 0, &listener_);
  accept_again_ = now + kAcceptPause;
}

void ServerState::add(SharedSocket socket, Nanos now) {
  if (sessions_.size() >= kMaxSessions) make_room();
  auto session = std::make_unique<Session>(config_, slots_, planning_, packets_, log_, std::move(socket), now);
  if (session->gone()) return;
  if (!session->add_to(epoll_.get(), event_of(EPOLLIN | EPOLLRDHUP, session.get()))) {
    return session->send_away(cannot_watch());
  }
  sessions_.push_back(std::move(session));
}

// Disconnects the connection that has been without a rank for the longest time. A trainer says HELLO at once, so it is
// served although many others connect and say nothing.
void ServerState::make_room() {
  const auto oldest = std::find_if(sessions_.begin(), sessions_.end(), [](const auto& session) {
    return session->waiting_for_hello() && session->fd() >= 0;
  });
  if (oldest != sessions_.end()) (*oldest)->send_away("too many connections (" + std::to_string(kMaxSessions) + ")");
}

void ServerState::close(const std::string& text, Nanos now) {
  if (closing_) return;
  closing_ = true;
  listener_.stop();
  for (const auto& session : sessions_) session->send_away(text);
  step_sessions(now);
}

// ---- The interface

Server::Server(const NodeConfig& config, ServerLanes lanes) : state_(std::make_unique<ServerState>(config, lanes)) {}
Server::~Server() = default;
void Server::open() { state_->open(); }

int Server::fd() const noexcept { return state_->fd(); }
void Server::step(Nanos now) { state_->step(now); }
bool Server::busy() const noexcept { return state_->busy(); }
void Server::close(const std::string& text, Nanos now) { state_->close(text, now); }
bool Server::finished() const noexcept { return state_->finished(); }
unsigned Server::attached() const noexcept { return state_->attached(); }
std::vector<SessionReports> Server::reports() const { return state_->reports(); }

}  // namespace gradlane
