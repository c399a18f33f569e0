// client_server.cc - reading requests and writing answers without blocking (control thread only)
#include "dataplane/watch/client_server.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/shared_socket.h"

namespace gradlane {
namespace {

// Limits of one step.
constexpr int kClientsPerStep = 16;
constexpr size_t kReadPerStep = size_t{4} << 10;
constexpr size_t kWritePerStep = size_t{256} << 10;
constexpr auto kClientPause = std::chrono::milliseconds(100);
constexpr size_t kMostFiles = 4;  // taken from one message; the kernel closes the others

std::optional<uid_t> user_of(int client) noexcept {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return std::nullopt;
  return peer.uid;
}

epoll_event event_of(int fd, uint32_t events) noexcept { return {.events = events, .data = {.fd = fd}}; }

// Receives bytes from a client that may send files. If files come, keeps the last one.
ssize_t receive(int socket, std::span<std::byte> bytes, FileDescriptor& file) noexcept {
  iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostFiles * sizeof(int))> control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got < 0) return got;
  for (cmsghdr* it = CMSG_FIRSTHDR(&message); it != nullptr; it = CMSG_NXTHDR(&message, it)) {
    if (it->cmsg_level != SOL_SOCKET || it->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= it->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(it) + at, sizeof(fd));
      file = FileDescriptor(fd);
    }
  }
  return got;
}

}  // namespace

struct ClientServer::Client {
  enum class State : uint8_t { kReading, kLater, kWriting, kGone };
  SharedSocket fd;
  std::optional<uid_t> user;
  FileDescriptor file;  // the latest one that it has sent
  State state = State::kReading;
  Clock::time_point came;
  Clock::time_point until;  // when the client is dropped
  std::string text;         // the request, then the answer
  size_t written = 0;
  std::function<std::optional<std::string>()> later;
};

ClientServer::ClientServer(int listener, Protocol protocol)
    : listener_(listener), protocol_(std::move(protocol)), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_ || !watch(EPOLL_CTL_ADD, listener_, EPOLLIN)) {
    throw SetupError(std::string("cannot watch ") + protocol_.name + ": " + std::strerror(errno));
  }
}

ClientServer::~ClientServer() = default;

bool ClientServer::watch(int operation, int fd, uint32_t events) const noexcept {
  epoll_event event = event_of(fd, events);
  return epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
}

bool ClientServer::busy() const noexcept {
  return std::ranges::any_of(clients_, [](const Client& client) { return client.state == Client::State::kLater; });
}

size_t ClientServer::clients() const noexcept { return clients_.size(); }

void ClientServer::step(Clock::time_point now) {
  std::array<epoll_event, kMostClients + 2> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  bool somebody_came = false;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.fd == listener_) {
      somebody_came = true;
      continue;
    }
    const auto client = std::ranges::find_if(clients_, [&](const Client& it) { return it.fd.get() == event.data.fd; });
    // Both directions are closed, so nobody can read an answer.
    if (client != clients_.end() && (event.events & (EPOLLHUP | EPOLLERR)) != 0) client->state = Client::State::kGone;
  }
  if (somebody_came) accept_some(now);
  for (Client& client : clients_) step_client(client, now);
  const bool some_went =
      std::erase_if(clients_, [](const Client& it) { return it.state == Client::State::kGone; }) != 0;
  if (cannot_accept_ && (some_went || now >= accept_again_)) {
    cannot_accept_ = false;
    (void)watch(EPOLL_CTL_MOD, listener_, EPOLLIN);
  }
}

// ---- New clients

void ClientServer::accept_some(Clock::time_point now) {
  for (int i = 0; i < kClientsPerStep; ++i) {
    if (SharedFile::too_many()) return pause_accepting(now + kClientPause);
    if (const Clock::time_point free = make_room(now); free > now) return pause_accepting(free);
    SharedSocket socket(accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      if (!socket.add_to(epoll_.get(), event_of(socket.get(), EPOLLIN))) continue;
      Client& client = clients_.emplace_back();
      client.user = user_of(socket.get());
      client.fd = std::move(socket);
      client.came = now;
      client.until = now + kPatience;
      continue;
    }
    if (errno == ECONNABORTED || errno == EINTR) continue;
    if (errno != EAGAIN) {
      // For example, there are no file descriptors left.
      spdlog::debug("cannot accept clients of {}: {}", protocol_.name, std::strerror(errno));
      pause_accepting(now + kClientPause);
    }
    return;
  }
}

// Stops watching the listening socket until the given time. The socket remains readable in the meantime.
void ClientServer::pause_accepting(Clock::time_point until) noexcept {
  cannot_accept_ = true;
  accept_again_ = until;
  (void)watch(EPOLL_CTL_MOD, listener_, 0);
}

// Drops a client if there are kMostClients already and another one waits. This is the client that has been connected
// longest without a complete request, or else the one that has been connected longest. A client may stay for
// kLeastStay, because its request may be on its way. Returns the time from which a client can be accepted.
ClientServer::Clock::time_point ClientServer::make_room(Clock::time_point now) {
  std::erase_if(clients_, [](const Client& client) { return client.state == Client::State::kGone; });
  if (clients_.size() < kMostClients) return now;
  pollfd waiting{listener_, POLLIN, 0};
  if (poll(&waiting, 1, 0) != 1) return now;  // nobody is waiting
  const auto idle =
      std::ranges::find_if(clients_, [](const Client& client) { return client.state == Client::State::kReading; });
  const auto goes = idle != clients_.end() ? idle : clients_.begin();
  const Clock::time_point may_go = goes->came + kLeastStay;
  if (may_go <= now) clients_.erase(goes);
  return std::max(may_go, now);
}

// ---- Requests and answers

void ClientServer::step_client(Client& client, Clock::time_point now) {
  using State = Client::State;
  if (client.state == State::kReading) read_request(client, now);
  if (client.state == State::kLater) {
    std::optional<std::string> text = client.later();
    if (!text && now >= client.until) text = protocol_.timeout;
    if (text) ready(client, *std::move(text), now);
  }
  if (client.state == State::kWriting) write_answer(client);
  if (client.state != State::kLater && now >= client.until) client.state = State::kGone;
}

void ClientServer::read_request(Client& client, Clock::time_point now) {
  std::array<std::byte, kReadPerStep> buffer;
  const std::span bytes =
      std::span(buffer).first(std::min(buffer.size(), protocol_.most_request + 1 - client.text.size()));
  const bool may_send_files = client.user == uid_t{0} || client.user == geteuid();
  const ssize_t got = may_send_files ? receive(client.fd.get(), bytes, client.file) : client.fd.receive(bytes);
  const bool refuses_file = got < 0 && errno == EPERM;
  if (got < 0 && !refuses_file) {
    if (errno != EAGAIN && errno != EINTR) client.state = Client::State::kGone;
    return;
  }
  if (got > 0) client.text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(got));
  const Sender sender = refuses_file                                  ? Sender::kFiles
                        : client.text.size() > protocol_.most_request ? Sender::kTooMuch
                        : got == 0                                    ? Sender::kEnded
                                                                      : Sender::kOpen;
  std::optional<ServerAnswer> answer;
  if (!client.text.empty() || refuses_file) {
    answer = protocol_.answer({.so_far = client.text, .sender = sender, .user = client.user, .file = client.file});
  }
  if (!answer) {
    if (sender != Sender::kOpen) client.state = Client::State::kGone;
    return;
  }
  if (!answer->later) return ready(client, std::move(answer->text), now);
  client.later = std::move(answer->later);
  client.state = Client::State::kLater;
  client.until = now + kLater;
  // epoll still reports that the client has disconnected.
  if (!watch(EPOLL_CTL_MOD, client.fd.get(), 0)) client.state = Client::State::kGone;
}

void ClientServer::ready(Client& client, std::string text, Clock::time_point now) {
  client.later = nullptr;
  client.text = std::move(text);
  client.written = 0;
  client.until = now + kPatience;
  client.state = Client::State::kWriting;
  if (!watch(EPOLL_CTL_MOD, client.fd.get(), EPOLLOUT)) client.state = Client::State::kGone;
}

void ClientServer::write_answer(Client& client) {
  const size_t most = std::min(client.text.size() - client.written, kWritePerStep);
  const ssize_t sent = send(client.fd.get(), client.text.data() + client.written, most, MSG_NOSIGNAL);
  if (sent < 0) {
    if (errno != EAGAIN && errno != EINTR) client.state = Client::State::kGone;
    return;
  }
  client.written += static_cast<size_t>(sent);
  if (client.written == client.text.size()) client.state = Client::State::kGone;
}

}  // namespace gradlane
