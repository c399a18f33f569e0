// meeting_test.cc - nodes that learn each other's addresses: who comes when, who does not, and strangers
// (a thread for each rank, sockets on loopback; whose patience matters has a clock of the test's)
#include "config/meeting.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <thread>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "config/addresses.h"

namespace gradlane::test::meeting_test {
namespace {

using std::chrono::milliseconds;

const IpAddress kHere = parse_address("127.0.0.1").value();
constexpr milliseconds kLong{600'000};  // never waited for in a test that passes

using Clock = std::chrono::steady_clock;
std::atomic<Clock::duration> virtual_time{};
Clock::time_point virtual_now() { return Clock::time_point(virtual_time.load()); }
// Each look at it takes 100 s.
Clock::time_point passing_now() {
  static std::atomic<int> looks{0};
  return Clock::time_point(std::chrono::seconds(100) * ++looks);
}

sockaddr_in address_at(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

FileDescriptor listener_at(uint16_t& port) {
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = address_at(0);
  socklen_t bytes = sizeof(address);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  EXPECT_EQ(listen(fd.get(), 8), 0);
  EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  port = ntohs(address.sin_port);
  return fd;
}

// A port that nobody listens at, and that no other program is given: rank 0 reuses addresses, and so can listen there.
class FreePort {
 public:
  FreePort() : fd_(bound_at(0)) {
    sockaddr_in address{};
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    port_ = ntohs(address.sin_port);
  }
  operator uint16_t() const { return port_; }  // NOLINT(google-explicit-constructor): a port
  // Until so many have connected, who are sent away: they try again.
  void turn_away(unsigned count) const {
    const FileDescriptor listener = bound_at(port_);
    EXPECT_EQ(listen(listener.get(), 8), 0);
    for (unsigned i = 0; i < count; ++i) (void)FileDescriptor(accept(listener.get(), nullptr, nullptr));
  }

 private:
  // 0: the kernel chooses a port.
  static FileDescriptor bound_at(uint16_t port) {
    FileDescriptor fd(socket(AF_INET, SOCK_STREAM, 0));
    const int yes = 1;
    EXPECT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)), 0);
    const sockaddr_in address = address_at(port);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }

  FileDescriptor fd_;
  uint16_t port_ = 0;
};

// What came of it: addresses, or what was wrong.
std::string met(unsigned rank, unsigned world, uint16_t port, Clock::time_point (*now)() = Clock::now,
                const IpAddress& ip = kHere) {
  try {
    std::string text;
    for (const IpAddress& it : meet({ip, port, rank, world, kLong, now}, "W", [](const std::string&) {})) {
      text += ip_text(it) + " ";
    }
    return text;
  } catch (const SetupError& error) {
    return error.what();
  }
}

std::future<std::string> start(unsigned rank, unsigned world, uint16_t port, Clock::time_point (*now)() = Clock::now) {
  return std::async(std::launch::async, [=] { return met(rank, world, port, now); });
}

// Connected, once somebody listens.
FileDescriptor stranger_at(uint16_t port) {
  const sockaddr_in address = address_at(port);
  for (;;) {
    FileDescriptor fd(socket(AF_INET, SOCK_STREAM, 0));
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
    std::this_thread::yield();
  }
}

void say(const FileDescriptor& fd, const std::string& text) {
  EXPECT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

std::string heard(const FileDescriptor& fd) {
  std::string text(256, '\0');
  const ssize_t count = recv(fd.get(), text.data(), text.size(), 0);
  return text.substr(0, count < 0 ? 0 : static_cast<size_t>(count));
}

TEST(Meeting, AllLearnTheSameWhoeverComesFirst) {
  EXPECT_EQ(met(0, 1, FreePort()), "127.0.0.1 ");
  const FreePort port;
  std::vector<std::future<std::string>> ranks;
  for (const unsigned rank : {2U, 1U, 3U}) ranks.push_back(start(rank, 4, port));
  port.turn_away(3);
  ranks.push_back(start(0, 4, port));
  for (auto& it : ranks) EXPECT_EQ(it.get(), "127.0.0.1 127.0.0.1 127.0.0.1 127.0.0.1 ");
}

TEST(Meeting, StrangersAreNobody) {
  const FreePort port;
  auto host = start(0, 3, port);
  std::vector<FileDescriptor> strangers;
  for (const std::string text : {"GET / HTTP/1.1\r\n\r\n", "gradlane-meeting 1 \n", "gradlane-meeting 1 x y\n",
                                 "gradlane-meeting 1 1 2 3\n", "gradlane-meeting 1 -1 2\n", "\n", "gradlane-meet"}) {
    strangers.push_back(stranger_at(port));
    say(strangers.back(), text);
  }
  strangers.push_back(stranger_at(port));
  say(strangers.back(), std::string(300, 'x'));
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(heard(strangers[i]), "") << i;
  // One who left before the end is nobody either.
  FileDescriptor gone = stranger_at(port);
  say(gone, "gradlane-meeting 1 1 3\n");
  gone.reset();
  auto two = start(2, 3, port);
  EXPECT_EQ(met(1, 3, port), "127.0.0.1 127.0.0.1 127.0.0.1 ");
  EXPECT_EQ(two.get(), host.get());
}

TEST(Meeting, WhoDoesNotComeIsNamedEverywhere) {
  const FreePort port;
  virtual_time = Clock::duration{};
  auto host = start(0, 4, port, virtual_now);
  const FileDescriptor one = stranger_at(port);
  say(one, "gradlane-meeting 1 1 4\n");
  // Who comes after it is heard after it.
  const FileDescriptor stranger = stranger_at(port);
  say(stranger, "\n");
  EXPECT_EQ(heard(stranger), "");
  virtual_time = kLong;
  const std::string text = host.get();
  EXPECT_NE(text.find("W: ranks 2, 3 of 4 did not come to 127.0.0.1:"), std::string::npos) << text;
  EXPECT_EQ(heard(one).find("refused ranks 2, 3 of 4 did not come"), 0U);
  EXPECT_NE(met(1, 2, FreePort(), passing_now).find("W: no connection to 127.0.0.1:"), std::string::npos);
}

TEST(Meeting, WhatRankZeroRefusesIsPassedOn) {
  uint16_t port = 0;
  const FileDescriptor listener = listener_at(port);
  auto visitor = start(1, 4, port);
  const FileDescriptor guest(accept(listener.get(), nullptr, nullptr));
  EXPECT_EQ(heard(guest), "gradlane-meeting 1 1 4\n");
  say(guest, "refused ranks 2, 3 of 4 did not come\n");
  EXPECT_EQ(visitor.get().find("W: rank 0 says: ranks 2, 3 of 4 did not come"), 0U);
}

TEST(Meeting, WhoIsWaitedForIsSaid) {
  for (unsigned rank = 0; rank < 2; ++rank) {
    std::string said;
    EXPECT_THROW((void)meet({kHere, FreePort(), rank, 2, kLong, passing_now}, "W",
                            [&](const std::string& text) {
                              said = text;
                              throw SetupError("enough");
                            }),
                 SetupError);
    EXPECT_EQ(said.find(rank == 0 ? "W: waiting at 127.0.0.1:" : "W: waiting for all 2 ranks at 127.0.0.1:"), 0U)
        << said;
    EXPECT_NE(said.find(" s more at most"), std::string::npos) << said;
    EXPECT_EQ(said.find(" for rank 1 of 2, ") != std::string::npos, rank == 0) << said;
  }
}

TEST(Meeting, WhoDisagreesIsTold) {
  const FreePort port;
  auto host = start(0, 3, port);
  auto one = start(1, 3, port);
  const FileDescriptor first = stranger_at(port);
  say(first, "gradlane-meeting 1 1 4\n");
  EXPECT_NE(heard(first).find("refused rank 0 at 127.0.0.1:"), std::string::npos);
  const FileDescriptor zero = stranger_at(port);
  say(zero, "gradlane-meeting 1 0 3\n");
  EXPECT_EQ(heard(zero), "refused rank 0 is 127.0.0.1 already: two programs have it\n");
  EXPECT_NE(met(7, 8, port).find("was started as one of 3, and rank 7 as one of 8"), std::string::npos);
  EXPECT_EQ(met(2, 3, port), "127.0.0.1 127.0.0.1 127.0.0.1 ");
  EXPECT_EQ(one.get(), host.get());
}

TEST(Meeting, WhatAnswersMustBeOne) {
  for (const std::string answer : {"HTTP/1.1 200 OK\n", "nodes 127.0.0.1\n", "nodes 127.0.0.1,x\n", "nodes \n"}) {
    uint16_t port = 0;
    const FileDescriptor listener = listener_at(port);
    auto visitor = start(1, 2, port);
    const FileDescriptor guest(accept(listener.get(), nullptr, nullptr));
    EXPECT_EQ(heard(guest), "gradlane-meeting 1 1 2\n");
    say(guest, answer);
    EXPECT_NE(visitor.get().find("is no gradlaned"), std::string::npos) << answer;
  }
}

TEST(Meeting, RankZeroNeedsTheAddress) {
  const std::string text = met(0, 2, FreePort(), Clock::now, parse_address("192.0.2.77").value());
  EXPECT_NE(text.find("192.0.2.77 is no address of this machine: name the host that rank 0 runs on"), std::string::npos)
      << text;
  uint16_t port = 0;
  const FileDescriptor listener = listener_at(port);
  EXPECT_NE(met(0, 2, port).find("cannot listen at TCP port 127.0.0.1:"), std::string::npos);
}

}  // namespace
}  // namespace gradlane::test::meeting_test
