// http_client_test.cc - the HTTP client against servers of all kinds
#include "tools/admin/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "config/addresses.h"
#include "config/socket_address.h"

namespace gradlane::test::http_client_test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kLong{600'000};  // a test that passes never waits this long
constexpr milliseconds kPatience{200};  // timeout of a test that must time out

// A listening socket on loopback. A thread gives each connection to `serve`, one after another.
class Peer {
 public:
  using Serve = std::function<void(int fd, const std::stop_token& stop)>;

  explicit Peer(Serve serve, const char* address = "127.0.0.1")
      : listener_(listening(address)), serve_(std::move(serve)), thread_([this](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            pollfd watched{listener_.get(), POLLIN, 0};
            if (poll(&watched, 1, 20) != 1) continue;
            const FileDescriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            ++came_;
            if (fd) serve_(fd.get(), stop);
          }
        }) {}

  [[nodiscard]] uint16_t port() const {
    sockaddr_in6 address{};  // the port is at the same place in addresses of IPv4 and IPv6
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    return ntohs(address.sin6_port);
  }
  [[nodiscard]] unsigned came() const { return came_; }

 private:
  static FileDescriptor listening(const char* address) {
    const SocketAddress to({*parse_address(address), 0});
    FileDescriptor fd(socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(fd.get(), to.get(), to.bytes()), 0);
    EXPECT_EQ(listen(fd.get(), 16), 0);
    return fd;
  }

  FileDescriptor listener_;
  const Serve serve_;
  std::atomic<unsigned> came_{0};
  std::jthread thread_;  // the last member, so the thread ends before the others are destroyed
};

void read_request(int fd, std::string& request) {
  char bytes[1024];
  while (request.find("\r\n\r\n") == std::string::npos) {
    const ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
    if (got <= 0) return;
    request.append(bytes, static_cast<size_t>(got));
  }
}

Peer::Serve says(std::string text) {
  return [text = std::move(text)](int fd, const std::stop_token&) {
    std::string request;
    read_request(fd, request);
    (void)send(fd, text.data(), text.size(), MSG_NOSIGNAL);
  };
}

// Sends `first`, then `text` again and again with `pause` in between, until the client has gone.
Peer::Serve says_for_ever(std::string first, std::string text, milliseconds pause = milliseconds(0)) {
  return [=](int fd, const std::stop_token& stop) {
    std::string request;
    read_request(fd, request);
    (void)send(fd, first.data(), first.size(), MSG_NOSIGNAL);
    pollfd gone{fd, POLLIN, 0};
    while (!stop.stop_requested() && send(fd, text.data(), text.size(), MSG_NOSIGNAL) > 0) {
      (void)poll(&gone, 1, static_cast<int>(pause.count()));
    }
  };
}

// Sends nothing, and receives until the client has gone.
Peer::Serve says_nothing() {
  return [](int fd, const std::stop_token&) {
    char bytes[1024];
    while (recv(fd, bytes, sizeof(bytes), 0) > 0) {
    }
  };
}

std::string fault(HttpClient& client, milliseconds patience = kLong) {
  try {
    return "none, but " + client.get("/stats", patience, {}).substr(0, 100);
  } catch (const SetupError& error) {
    return error.what();
  }
}

std::string fault_of(Peer::Serve serve) {
  const Peer peer(std::move(serve));
  HttpClient client("127.0.0.1", peer.port());
  return fault(client);
}

TEST(HttpClient, GetsADocument) {
  std::string request;
  const std::string body(100'000, 'a');  // more than is received at a time
  const Peer peer([&](int fd, const std::stop_token&) {
    request.clear();
    read_request(fd, request);
    for (const std::string& part :
         {std::string("HTT"), std::string("P/1.1 200 OK\r\nContent-Le"), "ngth: 100000\r\n\r\n" + body + "and more"}) {
      (void)send(fd, part.data(), part.size(), MSG_NOSIGNAL);
    }
  });
  HttpClient client("127.0.0.1", peer.port());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.get("/stats", kLong, {}), body);
  EXPECT_THAT(request, testing::StartsWith("GET /stats HTTP/1.0\r\nHost: 127.0.0.1:"));
}

TEST(HttpClient, ADocumentMayEndWithTheConnection) {
  const Peer peer(says("HTTP/1.0 200 OK\r\n\r\n{}"));
  EXPECT_EQ(HttpClient("127.0.0.1", peer.port()).get("/stats", kLong, {}), "{}");
}

TEST(HttpClient, Ipv6) {
  const Peer six(says("HTTP/1.0 200 OK\r\n\r\nsix"), "::1");
  HttpClient client("::1", six.port());
  EXPECT_EQ(client.place(), "[::1]:" + std::to_string(six.port()));
  EXPECT_EQ(client.get("/stats", kLong, {}), "six");
}

TEST(HttpClient, Names) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "getaddrinfo_a() has threads of the C library's own, in which ThreadSanitizer ends the program";
#endif
#endif
  const Peer four(says("HTTP/1.0 200 OK\r\n\r\nfour"));
  EXPECT_EQ(HttpClient("localhost", four.port()).get("/stats", kLong, {}), "four")
      << "whatever other addresses the name has";
  HttpClient nobody("gradlane-no-such.invalid", 9400);
  EXPECT_THAT(fault(nobody), HasSubstr("gradlane-no-such.invalid"));
}

TEST(HttpClient, WhatIsNoAnswer) {
  EXPECT_EQ(fault_of(says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{")), "its answer is incomplete");
  EXPECT_EQ(fault_of(says("")), "the answer does not come from gradlaned");
  EXPECT_EQ(fault_of(says("SSH-2.0-OpenSSH_9.2\r\n")), "the answer does not come from gradlaned");
  EXPECT_EQ(fault_of(says("HTTP/1.1 500 No\r\n\r\n")), "the answer does not come from gradlaned");
  EXPECT_EQ(fault_of(says("HTTP/1.1 404 Not Found\r\n\r\n")), "it is too old, or not gradlaned: it has no /stats");
  uint16_t port = 0;
  {
    const Peer peer(says(""));
    port = peer.port();
  }
  HttpClient client("127.0.0.1", port);
  EXPECT_EQ(fault(client), "Connection refused");
}

TEST(HttpClient, WhatIsTooLong) {
  EXPECT_EQ(fault_of(says("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")), "its answer is too long");
  const std::string megabyte(size_t{1} << 20, 'x');
  EXPECT_EQ(fault_of(says_for_ever("HTTP/1.1 200 OK\r\n\r\n", megabyte)), "its answer is too long");
  EXPECT_EQ(fault_of(says_for_ever("HTTP/1.1 200 OK\r\n", "A: b\r\n")), "the answer does not come from gradlaned");
}

TEST(HttpClient, WhoIsSlowIsGivenUp) {
  for (const auto& [first, text] :
       {std::pair<const char*, const char*>{"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", " "},
        {"HTTP/1.1 200 OK\r\nA: ", "b"},
        {"", ""}}) {
    const Peer peer(*text != 0 ? says_for_ever(first, text, milliseconds(10)) : says_nothing());
    HttpClient client("127.0.0.1", peer.port());
    EXPECT_EQ(fault(client, kPatience), "no answer within 200 ms");
  }
}

TEST(HttpClient, WhoeverWaitsCanBeStopped) {
  const Peer peer(says_nothing());
  const std::jthread asking([&peer](const std::stop_token& stop) {
    HttpClient client("127.0.0.1", peer.port());
    EXPECT_THROW((void)client.get("/stats", std::chrono::hours(1), stop), SetupError);
  });
  while (peer.came() == 0) std::this_thread::yield();
}

}  // namespace
}  // namespace gradlane::test::http_client_test
