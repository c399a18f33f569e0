// admin_socket_test.cc - the admin socket with clients of all sorts (no daemon; the test sets the clock)
#include "dataplane/watch/admin_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>

#include "base/error.h"

namespace gradlane::test::admin_socket_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// A client that never blocks.
class Client {
 public:
  explicit Client(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  // Returns the number of bytes that the socket accepted.
  size_t send(const std::string& bytes) const {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return sent < 0 ? 0 : static_cast<size_t>(sent);
  }
  void say_no_more() const { shutdown(fd_.get(), SHUT_WR); }
  void close() { fd_.reset(); }
  // Receives up to `most` of the bytes that have arrived.
  void receive(size_t most = size_t{1} << 20) {
    std::array<char, 4096> bytes;
    while (most != 0) {
      const ssize_t got = recv(fd_.get(), bytes.data(), std::min(most, bytes.size()), 0);
      if (got < 0) {
        broken_ |= errno != EAGAIN;
        return;
      }
      if (got == 0) {
        ended_ = true;
        return;
      }
      text_.append(bytes.data(), static_cast<size_t>(got));
      most -= static_cast<size_t>(got);
    }
  }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] bool ended() const { return ended_; }  // the connection ended in order
  [[nodiscard]] bool broken() const { return broken_; }

 private:
  FileDescriptor fd_;
  std::string text_;
  bool ended_ = false;
  bool broken_ = false;
};

class AdminTest : public testing::Test {
 protected:
  AdminTest() {
    std::string name = testing::TempDir() + "gl-admin-XXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ + "/admin";
    admin_ = std::make_unique<AdminSocket>(path_, [this](AdminRequest& from) {
      const std::string& request = from.line;
      requests_.push_back(request);
      return answer_;
    });
  }
  ~AdminTest() override { std::filesystem::remove_all(folder_); }

  void step(milliseconds later = milliseconds(0)) {
    now_ += later;
    admin_->step(now_);
  }
  // Returns the answer to a request.
  std::string ask(const std::string& request) {
    Client client(path_);
    client.send(request);
    step();
    client.receive();
    EXPECT_TRUE(client.ended()) << request.substr(0, 40);
    return client.text();
  }

  // Returns the answer to a request when other clients do not make room at once.
  std::string ask_in_a_crowd() {
    Client client(path_);
    client.send("stats\n");
    for (int i = 0; i < 20 && !client.ended(); ++i) {
      step(milliseconds(50));
      client.receive();
    }
    return client.text();
  }

  std::string folder_;
  std::string path_;
  AdminAnswer answer_{"{}", {}};
  std::vector<std::string> requests_;
  AdminSocket::Clock::time_point now_{};
  std::unique_ptr<AdminSocket> admin_;
};

TEST_F(AdminTest, OneLineOneDocument) {
  answer_.text = R"({"node": 3})";
  EXPECT_EQ(ask("stats\n"), "{\"node\": 3}\n");
  EXPECT_EQ(ask("stats\r\n"), "{\"node\": 3}\n");
  EXPECT_EQ(ask("probe 3000\nstats\n"), "{\"node\": 3}\n") << "and what stands behind the line is not read";
  EXPECT_EQ(requests_, (std::vector<std::string>{"stats", "stats", "probe 3000"}));
  EXPECT_EQ(admin_->clients(), 0U);
}

TEST_F(AdminTest, TheFileIsForUserAndGroupAndGoesAtTheEnd) {
  struct stat status {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0660U);
  EXPECT_THROW(AdminSocket(path_, {}), SetupError) << "somebody listens there";
  admin_.reset();
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(AdminTest, StaleFileIsReplacedAndOthersAreNot) {
  admin_.reset();
  {
    const FileDescriptor stale(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    ASSERT_EQ(bind(stale.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ASSERT_TRUE(std::filesystem::exists(path_));
  EXPECT_NO_THROW(AdminSocket(path_, {}));
  std::ofstream(path_) << "precious";
  try {
    const AdminSocket admin(path_, {});
    FAIL() << "it is no socket";
  } catch (const SetupError& error) {
    EXPECT_THAT(error.what(), HasSubstr("(admin)"));
  }
  EXPECT_EQ(std::filesystem::file_size(path_), 8U);
}

TEST_F(AdminTest, HalfRequestsWaitAndThenGo) {
  Client slow(path_);
  for (const char* const part : {"st", "a", "ts"}) {
    slow.send(part);
    step(seconds(1));
  }
  slow.receive();
  EXPECT_EQ(slow.text(), "");
  slow.send("\n");
  step(seconds(1));
  slow.receive();
  EXPECT_TRUE(slow.ended());
  EXPECT_EQ(requests_, (std::vector<std::string>{"stats"}));

  Client slower(path_);
  slower.send("sta");
  step();
  step(milliseconds(4900));
  EXPECT_EQ(admin_->clients(), 1U);
  step(milliseconds(200));
  EXPECT_EQ(admin_->clients(), 0U);
  slower.receive();
  EXPECT_TRUE(slower.ended());
  EXPECT_EQ(slower.text(), "");
}

TEST_F(AdminTest, EndOfInputEndsARequest) {
  Client client(path_);
  client.send("stats");
  client.say_no_more();
  step();
  step();
  client.receive();
  EXPECT_EQ(client.text(), "{}\n");
  Client silent(path_);
  silent.say_no_more();
  step();
  EXPECT_EQ(admin_->clients(), 0U);
  EXPECT_EQ(requests_.size(), 1U);
}

TEST_F(AdminTest, HugeRequestsAreRefusedAndNotKept) {
  EXPECT_THAT(ask(std::string(AdminSocket::kMostRequest, 'x') + "\n"), "{}\n");
  EXPECT_THAT(ask(std::string(AdminSocket::kMostRequest + 1, 'x') + "\n"), HasSubstr("at most 256 bytes"));
  EXPECT_THAT(ask(std::string(50'000, 'x')), HasSubstr("at most 256 bytes"));
  EXPECT_EQ(requests_.size(), 1U);
}

TEST_F(AdminTest, GarbageIsAsGoodAsAnyRequest) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string bytes(random() % 600, 0);
    for (char& byte : bytes) byte = static_cast<char>(random());
    Client client(path_);
    client.send(bytes);
    if (random() % 2 == 0) client.say_no_more();
    if (random() % 4 == 0) client.close();
    step();
  }
  for (const std::string& request : requests_) EXPECT_LE(request.size(), AdminSocket::kMostRequest);
  EXPECT_LE(admin_->clients(), ClientServer::kMostClients);
  step(seconds(6));
  EXPECT_EQ(admin_->clients(), 0U);
  EXPECT_EQ(ask("stats\n"), "{}\n");
  EXPECT_EQ(admin_error("\xff\n\""), R"({"error":"\ufffd\n\""})");
}

TEST_F(AdminTest, ACrowdThatSaysNothingKeepsNobodyOut) {
  std::vector<Client> crowd;
  for (int i = 0; i < 60; ++i) crowd.emplace_back(path_);
  for (int i = 0; i < 8; ++i) step();
  EXPECT_EQ(admin_->clients(), ClientServer::kMostClients);
  EXPECT_EQ(ask_in_a_crowd(), "{}\n");
  // All clients wait for answers, and none of them reads. The oldest one is dropped.
  answer_.later = [] { return std::nullopt; };
  for (Client& client : crowd) client.send("probe\n");
  for (int i = 0; i < 3; ++i) step();
  answer_.later = nullptr;
  EXPECT_EQ(ask_in_a_crowd(), "{}\n");
}

// Many other clients connect after this client, and before it sends its request.
TEST_F(AdminTest, WhoHasJustComeIsNotPushedOut) {
  Client client(path_);
  step();
  std::vector<Client> crowd;
  for (int i = 0; i < 40; ++i) crowd.emplace_back(path_);
  for (int i = 0; i < 5; ++i) step(milliseconds(1));
  client.send("stats\n");
  step();
  client.receive();
  EXPECT_EQ(client.text(), "{}\n");
  // A crowd that disconnects makes room at once.
  crowd.clear();
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(ask("stats\n"), "{}\n");
}

TEST_F(AdminTest, SlowReadersAreDroppedAndOthersServed) {
  answer_.text = std::string(4 << 20, 'x');
  Client reader(path_);
  Client sleeper(path_);
  reader.send("stats\n");
  sleeper.send("stats\n");
  for (int i = 0; i < 2000 && !reader.ended(); ++i) {
    step(milliseconds(1));
    reader.receive();
  }
  EXPECT_EQ(reader.text().size(), answer_.text.size() + 1);
  EXPECT_EQ(admin_->clients(), 1U);
  step(seconds(6));
  EXPECT_EQ(admin_->clients(), 0U);
  sleeper.receive(size_t{8} << 20);
  EXPECT_TRUE(sleeper.ended());
  EXPECT_LT(sleeper.text().size(), answer_.text.size());
}

// ---- Answers that come later

TEST_F(AdminTest, LaterAnswersComeLater) {
  bool there = false;
  answer_.later = [&there]() -> std::optional<std::string> {
    return there ? std::optional<std::string>("[1]") : std::nullopt;
  };
  Client client(path_);
  client.send("probe\n");
  step();
  EXPECT_TRUE(admin_->busy());
  for (int i = 0; i < 20; ++i) step(seconds(1));
  client.receive();
  EXPECT_EQ(client.text(), "");
  there = true;
  step();
  client.receive();
  EXPECT_EQ(client.text(), "[1]\n");
  EXPECT_TRUE(client.ended());
  EXPECT_FALSE(admin_->busy());
}

TEST_F(AdminTest, ALaterAnswerThatNeverComesEndsWithAnError) {
  answer_.later = [] { return std::nullopt; };
  Client client(path_);
  client.send("probe\n");
  step();
  step(seconds(59));
  EXPECT_TRUE(admin_->busy());
  step(seconds(2));
  client.receive();
  EXPECT_THAT(client.text(), HasSubstr("error"));
  EXPECT_FALSE(admin_->busy());
}

TEST_F(AdminTest, WhoGoesAwayEndsWhatIsDoneForIt) {
  const auto owned = std::make_shared<int>();
  answer_.later = [owned] { return std::nullopt; };
  Client client(path_);
  client.send("probe\n");
  client.say_no_more();
  step();
  answer_.later = nullptr;
  step();
  EXPECT_EQ(owned.use_count(), 2) << "it may still read";
  client.close();
  step();
  EXPECT_EQ(owned.use_count(), 1);
  EXPECT_EQ(admin_->clients(), 0U);
}

}  // namespace
}  // namespace gradlane::test::admin_socket_test
