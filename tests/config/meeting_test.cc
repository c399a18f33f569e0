// meeting_test.cc - nodes that learn each other's addresses: who comes when, who does not, and strangers
#include "config/meeting.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <future>
#include <thread>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "config/addresses.h"

namespace gradlane::test::meeting_test {
namespace {

using std::chrono::milliseconds;

const IpAddress kHere = parse_address("127.0.0.1").value();
constexpr milliseconds kLong{20'000};
constexpr milliseconds kShort{1500};

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

// That nobody listens at.
uint16_t free_port() {
  uint16_t port = 0;
  (void)listener_at(port);
  return port;
}

// What came of it: addresses, or what was wrong.
std::string met(unsigned rank, unsigned world, uint16_t port, milliseconds patience = kLong,
                const IpAddress& ip = kHere) {
  try {
    std::string text;
    for (const IpAddress& it : meet({ip, port, rank, world, patience}, "W", [](const std::string&) {})) {
      text += ip_text(it) + " ";
    }
    return text;
  } catch (const SetupError& error) {
    return error.what();
  }
}

std::future<std::string> start(unsigned rank, unsigned world, uint16_t port, milliseconds patience = kLong) {
  return std::async(std::launch::async, [=] { return met(rank, world, port, patience); });
}

// Connected, once somebody listens.
FileDescriptor stranger_at(uint16_t port) {
  const sockaddr_in address = address_at(port);
  for (int i = 0; i < 2000; ++i) {
    FileDescriptor fd(socket(AF_INET, SOCK_STREAM, 0));
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
    std::this_thread::sleep_for(milliseconds(5));
  }
  ADD_FAILURE() << "nobody listens";
  return {};
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
  EXPECT_EQ(met(0, 1, free_port()), "127.0.0.1 ");
  const uint16_t port = free_port();
  std::vector<std::future<std::string>> ranks;
  for (const unsigned rank : {2U, 1U, 3U}) ranks.push_back(start(rank, 4, port));
  std::this_thread::sleep_for(milliseconds(50));
  ranks.push_back(start(0, 4, port));
  for (auto& it : ranks) EXPECT_EQ(it.get(), "127.0.0.1 127.0.0.1 127.0.0.1 127.0.0.1 ");
}

TEST(Meeting, StrangersAreNobody) {
  const uint16_t port = free_port();
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
  const uint16_t port = free_port();
  auto one = start(1, 4, port, kShort);  // before rank 0, which gives up later then
  std::this_thread::sleep_for(milliseconds(100));
  const std::string host = met(0, 4, port, kShort);
  EXPECT_NE(host.find("W: ranks 2, 3 of 4 did not come to 127.0.0.1:"), std::string::npos) << host;
  const std::string other = one.get();
  EXPECT_NE(other.find("W: rank 0 says: ranks 2, 3 of 4 did not come"), std::string::npos) << other;
  EXPECT_NE(met(1, 2, free_port(), kShort).find("W: no connection to 127.0.0.1:"), std::string::npos);
}

TEST(Meeting, WhoIsWaitedForIsSaid) {
  for (unsigned rank = 0; rank < 2; ++rank) {
    std::string said;
    EXPECT_THROW((void)meet({kHere, free_port(), rank, 2, kShort}, "W", [&](const std::string& text) { said = text; }),
                 SetupError);
    EXPECT_EQ(said.find(rank == 0 ? "W: waiting at 127.0.0.1:" : "W: waiting for all 2 ranks at 127.0.0.1:"), 0U)
        << said;
    EXPECT_NE(said.find(" s more at most"), std::string::npos) << said;
    EXPECT_EQ(said.find(" for rank 1 of 2, ") != std::string::npos, rank == 0) << said;
  }
}

TEST(Meeting, WhoDisagreesIsTold) {
  const uint16_t port = free_port();
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
  const std::string text = met(0, 2, free_port(), kShort, parse_address("192.0.2.77").value());
  EXPECT_NE(text.find("192.0.2.77 is no address of this machine: name the host that rank 0 runs on"), std::string::npos)
      << text;
  uint16_t port = 0;
  const FileDescriptor listener = listener_at(port);
  EXPECT_NE(met(0, 2, port, kShort).find("cannot listen at TCP port 127.0.0.1:"), std::string::npos);
}

}  // namespace
}  // namespace gradlane::test::meeting_test
