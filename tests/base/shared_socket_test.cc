// shared_socket_test.cc - sockets over which another process sends files, and one that would linger for an hour
#include "base/shared_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/file_descriptor.h"

namespace gradlane::test::shared_socket_test {
namespace {

struct Pair {
  explicit Pair(int type) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends), 0);
    ours = SharedSocket(ends[0]);
    theirs = FileDescriptor(ends[1]);
  }
  SharedSocket ours;
  FileDescriptor theirs;
};

void send_file(int socket, std::string_view text, int file, int flags = 0) {
  iovec part{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &file, sizeof(file));
  ASSERT_EQ(sendmsg(socket, &message, flags), static_cast<ssize_t>(text.size()));
}

// Returns what the socket receives, or an error's name.
std::string received(const SharedSocket& socket, size_t most = 100, int flags = 0) {
  std::array<std::byte, 100> bytes{};
  const ssize_t got = socket.receive(std::span(bytes).first(most), flags);
  if (got < 0) return strerrorname_np(errno);
  return {reinterpret_cast<const char*>(bytes.data()), std::min(static_cast<size_t>(got), most)};
}

// A TCP connection whose end `file` lingers for an hour, because the other end does not read.
struct Lingering {
  Lingering() {
    const FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    auto* const to = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener.get(), to, bytes), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    EXPECT_EQ(getsockname(listener.get(), to, &bytes), 0);
    file = FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(file.get(), to, bytes), 0);
    reader = FileDescriptor(accept(listener.get(), nullptr, nullptr));
    const std::array<char, 65536> noise{};
    while (send(file.get(), noise.data(), noise.size(), MSG_DONTWAIT) > 0) continue;
    const linger hour{.l_onoff = 1, .l_linger = 3600};
    EXPECT_EQ(setsockopt(file.get(), SOL_SOCKET, SO_LINGER, &hour, sizeof(hour)), 0);
  }
  FileDescriptor reader;
  FileDescriptor file;
};

TEST(SharedSocket, ReceivesBytesUpToAFile) {
  Pair stream(SOCK_STREAM);
  EXPECT_EQ(received(stream.ours), "EAGAIN");
  ASSERT_EQ(write(stream.theirs.get(), "abc", 3), 3);
  EXPECT_EQ(received(stream.ours, 2), "ab");
  send_file(stream.theirs.get(), "d", STDERR_FILENO);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(received(stream.ours), "EPERM");
  stream.theirs.reset();
  EXPECT_EQ(received(stream.ours), "EPERM");

  Pair ended(SOCK_STREAM);
  ended.theirs.reset();
  EXPECT_EQ(received(ended.ours), "");
}

TEST(SharedSocket, ReceivesUrgentBytesInTheirPlace) {
  Pair stream(SOCK_STREAM);
  ASSERT_EQ(send(stream.theirs.get(), "a", 1, MSG_OOB), 1);
  EXPECT_EQ(received(stream.ours), "a");
  EXPECT_EQ(received(stream.ours), "EAGAIN");
  send_file(stream.theirs.get(), "b", STDERR_FILENO, MSG_OOB);
  ASSERT_EQ(write(stream.theirs.get(), "c", 1), 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(received(stream.ours), "EPERM");
}

TEST(SharedSocket, ReceivesMessagesUpToAFile) {
  Pair packets(SOCK_SEQPACKET);
  for (const std::string_view text : {"abc", "", "defg"}) {
    ASSERT_EQ(send(packets.theirs.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  }
  EXPECT_EQ(received(packets.ours), "abc");
  EXPECT_EQ(received(packets.ours), "");
  std::array<std::byte, 2> two;
  EXPECT_EQ(packets.ours.receive(two, MSG_TRUNC), 4);
  EXPECT_EQ(received(packets.ours), "EAGAIN");
  for (const std::string_view text : {"", "h"}) {
    send_file(packets.theirs.get(), text, STDERR_FILENO);
    EXPECT_EQ(received(packets.ours), "EPERM");
  }
}

TEST(SharedSocket, ClosingDoesNotWaitForFiles) {
  const FileDescriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  for (int i = 0; i < 20; ++i) {
    Lingering lingering;
    Pair pair(i % 2 == 0 ? SOCK_STREAM : SOCK_SEQPACKET);
    ASSERT_TRUE(pair.ours.add_to(epoll.get(), {.events = EPOLLIN, .data = {}}));
    send_file(pair.theirs.get(), "abc", lingering.file.get());
    lingering.file.reset();
    pair.ours.reset();
    // The other process sees the end, and the epoll instance has lost the socket.
    char byte = 0;
    EXPECT_LE(recv(pair.theirs.get(), &byte, 1, 0), 0);
    epoll_event event;
    EXPECT_EQ(epoll_wait(epoll.get(), &event, 1, 0), 0);
  }
}

TEST(SharedSocket, IsClosed) {
  Pair pair(SOCK_STREAM);
  Lingering lingering;
  send_file(pair.theirs.get(), "abc", lingering.file.get());
  lingering.file.reset();
  const int fd = pair.ours.get();
  SharedSocket moved = std::move(pair.ours);
  EXPECT_FALSE(pair.ours);
  EXPECT_EQ(moved.get(), fd);
  moved.reset();
  while (fcntl(fd, F_GETFD) >= 0) usleep(1000);  // less than an hour
  EXPECT_EQ(errno, EBADF);
}

TEST(SharedSocket, ChangesItsEpollInstance) {
  const FileDescriptor first(epoll_create1(EPOLL_CLOEXEC));
  const FileDescriptor second(epoll_create1(EPOLL_CLOEXEC));
  Pair pair(SOCK_STREAM);
  EXPECT_FALSE(pair.ours.add_to(-1, {.events = EPOLLIN, .data = {}}));
  ASSERT_TRUE(pair.ours.add_to(first.get(), {.events = EPOLLIN, .data = {}}));
  ASSERT_TRUE(pair.ours.add_to(second.get(), {.events = EPOLLIN, .data = {}}));
  ASSERT_EQ(write(pair.theirs.get(), "abc", 3), 3);
  epoll_event event;
  EXPECT_EQ(epoll_wait(first.get(), &event, 1, 0), 0);
  EXPECT_EQ(epoll_wait(second.get(), &event, 1, 0), 1);
}

}  // namespace
}  // namespace gradlane::test::shared_socket_test
