// metrics_server_test.cc - the socket for metrics with scrapers of all sorts (no daemon; the test sets the clock)
#include "dataplane/watch/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <memory>
#include <random>

#include "base/error.h"
#include "config/addresses.h"
#include "dataplane/watch/http_request.h"

namespace gradlane::test::metrics_server_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kGet = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

// A client that never blocks.
class Scraper {
 public:
  explicit Scraper(uint16_t port, int buffer = 0) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    // Otherwise a byte may wait until the one before it is acknowledged.
    const int on = 1;
    setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (buffer != 0) setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  // Returns false if the server accepts no more bytes.
  bool send(const std::string& bytes) const {
    return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
  }
  void say_no_more() const { shutdown(fd_.get(), SHUT_WR); }
  // Resets the connection at any point, so that the server gets an error.
  void reset_connection() {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    fd_.reset();
  }
  // Receives up to `most` of the bytes that have arrived.
  void receive(size_t most = SIZE_MAX) {
    char bytes[16384];
    while (most != 0) {
      const ssize_t got = recv(fd_.get(), bytes, std::min(most, sizeof(bytes)), MSG_DONTWAIT);
      ended_ |= got == 0;
      if (got <= 0) return;
      text_.append(bytes, static_cast<size_t>(got));
      most -= static_cast<size_t>(got);
    }
  }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  FileDescriptor fd_;
  std::string text_;
  bool ended_ = false;
};

class MetricsServerTest : public testing::Test {
 protected:
  MetricsServerTest() {
    const IpPort address{ip_address(INADDR_LOOPBACK), 0};
    server_ = std::make_unique<MetricsServer>(
        address, MetricsServer::Types{"text/a", "text/b", "text/c"}, [this](HttpDocument which) {
          ++documents_;
          return which == HttpDocument::kOpenMetrics ? "open\n" : which == HttpDocument::kStats ? "{}\n" : document_;
        });
  }

  void step(milliseconds later = milliseconds(0)) {
    now_ += later;
    server_->step(now_);
  }
  [[nodiscard]] Scraper come(int buffer = 0) const { return Scraper(server_->port(), buffer); }
  // Returns the response to a request, whether other clients are connected or not. Loopback delivers at once.
  std::string scrape(const std::string& request = kGet) {
    Scraper scraper = come();
    scraper.send(request);
    for (int i = 0; i < 100 && !scraper.ended(); ++i) {
      step(milliseconds(10));
      scraper.receive();
    }
    EXPECT_TRUE(scraper.ended());
    return scraper.text();
  }

  std::string document_ = "text\n";
  unsigned documents_ = 0;
  MetricsServer::Clock::time_point now_{};
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, DocumentsAndErrors) {
  EXPECT_EQ(scrape(),
            "HTTP/1.1 200 OK\r\nContent-Type: text/a\r\nContent-Length: 5\r\nConnection: close\r\n\r\ntext\n");
  EXPECT_THAT(scrape("GET /metrics HTTP/1.0\r\nAccept: application/openmetrics-text\r\n\r\n"),
              EndsWith("\r\n\r\nopen\n"));
  EXPECT_THAT(scrape("HEAD /metrics HTTP/1.0\r\n\r\n"), EndsWith("Content-Length: 5\r\nConnection: close\r\n\r\n"));
  EXPECT_EQ(scrape("GET /stats HTTP/1.0\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/c\r\nContent-Length: 3\r\nConnection: close\r\n\r\n{}\n");
  EXPECT_THAT(scrape("GET / HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(scrape("DELETE /metrics HTTP/1.0\r\n\r\n"), HasSubstr("405 Method Not Allowed\r\nAllow: GET, HEAD\r\n"));
  EXPECT_EQ(server_->clients(), 0U);
}

TEST_F(MetricsServerTest, DocumentsAreNotMadeForEachScraper) {
  for (int i = 0; i < 5; ++i) scrape();  // each scrape takes 10 ms
  EXPECT_EQ(documents_, 1U);
  step(milliseconds(100));
  scrape();
  EXPECT_EQ(documents_, 2U);
}

TEST_F(MetricsServerTest, ARequestInPieces) {
  Scraper scraper = come();
  for (const char c : std::string(kGet)) {
    EXPECT_TRUE(scraper.send(std::string(1, c)));
    step();
  }
  for (int i = 0; i < 10000 && !scraper.ended(); ++i) {
    step();
    scraper.receive();
    usleep(1000);
  }
  EXPECT_THAT(scraper.text(), EndsWith("text\n"));
}

TEST_F(MetricsServerTest, WhoEndsItsSideBeforeTheHeaderEndsHearsOfIt) {
  Scraper scraper = come();
  scraper.send("GET /metr");
  step();
  scraper.say_no_more();
  step();
  scraper.receive();
  EXPECT_THAT(scraper.text(), StartsWith("HTTP/1.1 400 "));
}

TEST_F(MetricsServerTest, AnEndlessHeader) {
  Scraper scraper = come();
  scraper.send("GET /metrics HTTP/1.1\r\n");
  size_t lines = 0;
  for (; lines < 1000 && scraper.send("X-Header: of sixty-four bytes, again and again, and never ends\r\n"); ++lines)
    step();
  EXPECT_LT(lines, 200U);
  EXPECT_EQ(server_->clients(), 0U);
  EXPECT_THAT(scrape(), EndsWith("text\n"));
}

TEST_F(MetricsServerTest, ASlowOneIsDropped) {
  Scraper scraper = come();
  scraper.send("GET /metrics HTTP/1.1\r\n");
  for (int i = 0; i < 4; ++i) {
    scraper.send("A: b\r\n");
    step(seconds(1));
  }
  EXPECT_EQ(server_->clients(), 1U);
  step(seconds(2));
  EXPECT_EQ(server_->clients(), 0U);
  scraper.receive();
  EXPECT_TRUE(scraper.ended());
  EXPECT_EQ(scraper.text(), "");
}

TEST_F(MetricsServerTest, WhoNeverReadsIsDropped) {
  document_.assign(size_t{64} << 20, 'x');  // more than the kernel holds
  Scraper scraper = come(4096);
  scraper.send(kGet);
  for (int i = 0; i < 100; ++i) step(milliseconds(10));
  EXPECT_EQ(server_->clients(), 1U);
  Scraper reader = come();
  reader.send("HEAD /metrics HTTP/1.0\r\n\r\n");
  step();
  reader.receive();
  EXPECT_TRUE(reader.ended()) << "others are served meanwhile";
  step(seconds(6));
  EXPECT_EQ(server_->clients(), 0U);
}

TEST_F(MetricsServerTest, DisconnectsInTheMiddle) {
  document_.assign(size_t{64} << 20, 'x');
  Scraper in_request = come();
  in_request.send("GET /metrics HT");
  Scraper in_answer = come();
  in_answer.send(kGet);
  Scraper silent = come();
  step();
  EXPECT_EQ(server_->clients(), 3U);
  in_answer.receive(1000);
  in_request.reset_connection();
  in_answer.reset_connection();
  silent.reset_connection();
  step();
  step();
  EXPECT_EQ(server_->clients(), 0U);
}

TEST_F(MetricsServerTest, ACrowdThatSaysNothing) {
  std::deque<Scraper> crowd;
  for (int i = 0; i < 60; ++i) {
    crowd.emplace_back(server_->port());
    step();
    EXPECT_LE(server_->clients(), ClientServer::kMostClients);
  }
  EXPECT_THAT(scrape(), EndsWith("text\n")) << "they have to make room";
}

TEST_F(MetricsServerTest, Garbage) {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    Scraper scraper = come();
    std::string bytes(random() % 600, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (i % 2 == 0) bytes += "\r\n\r\n";
    scraper.send(bytes + " ");
    step();
    scraper.say_no_more();
    step();
    scraper.receive();
    EXPECT_THAT(scraper.text(), StartsWith("HTTP/1.1 "));
    EXPECT_THAT(scraper.text(), testing::Not(HasSubstr("200 OK")));
  }
  EXPECT_EQ(server_->clients(), 0U);
  EXPECT_EQ(documents_, 0U);
}

TEST(MetricsServer, AtAUnixSocket) {
  std::string folder = testing::TempDir() + "/gradlane-metrics-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/x.sock";
  {
    MetricsServer server(path, {"a", "b", "c"}, [](HttpDocument) { return "text\n"; });
    struct stat info {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode, mode_t{S_IFSOCK | 0660});
    const FileDescriptor client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    ASSERT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(send(client.get(), kGet, std::strlen(kGet), 0), static_cast<ssize_t>(std::strlen(kGet)));
    for (int i = 0; i < 3; ++i) server.step();
    char bytes[1024];
    const ssize_t got = recv(client.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    ASSERT_GT(got, 0);
    EXPECT_THAT(std::string(bytes, static_cast<size_t>(got)), EndsWith("\r\n\r\ntext\n"));
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  EXPECT_EQ(rmdir(folder.c_str()), 0);
}

TEST(MetricsServer, WhereNobodyCanListen) {
  const auto fault = [](const IpPort& address) -> std::string {
    try {
      const MetricsServer server(address, {}, [](HttpDocument) { return ""; });
      return "";
    } catch (const SetupError& error) {
      return error.what();
    }
  };
  const IpPort loopback{ip_address(INADDR_LOOPBACK), 0};
  const MetricsServer first(loopback, {}, [](HttpDocument) { return ""; });
  EXPECT_THAT(fault({loopback.ip, first.port()}), HasSubstr(":" + std::to_string(first.port()) +
                                                            ": Address already in use; another program listens there"));
  EXPECT_THAT(fault({*parse_address("203.0.113.1"), 9400}), HasSubstr("this machine has no such address"));
}

}  // namespace
}  // namespace gradlane::test::metrics_server_test
