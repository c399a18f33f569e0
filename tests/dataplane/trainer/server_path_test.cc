// server_path_test.cc - the socket file of a node's server: its mode, its directory, and other users of its path
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tests/dataplane/trainer/server_fixture.h"

namespace gradlane::test::server_path_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
namespace fs = std::filesystem;

mode_t mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

// Returns a socket of any type, bound to this path. Nobody listens on it yet.
FileDescriptor bound(const std::string& path, int type) {
  FileDescriptor fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

class ServerPathTest : public ServerTest {
 protected:
  // Returns the error if the server cannot be started; "" if it can.
  std::string refusal() {
    if (!lanes_) lanes_ = std::make_unique<FakeLanes>(config_.lanes, config_.trainers, config_.local_reduce);
    try {
      const Server server(config_, lanes_->interface());
    } catch (const SetupError& error) {
      return error.what();
    }
    return {};
  }
  std::string run() const { return folder_ + "/run"; }
};

TEST_F(ServerPathTest, FilesComeAndGo) {
  for (const mode_t mask : {022U, 0U, 077U}) {
    const mode_t before = umask(mask);
    start();
    EXPECT_EQ(umask(before), mask);  // start() has restored the mask
    EXPECT_EQ(mode_of(config_.socket), 0660U);
    EXPECT_EQ(mode_of(run()), 0750U & ~mask);
    EXPECT_EQ(mode_of(config_.socket + ".lock"), 0600U);
    finish();
    server_.reset();
    EXPECT_FALSE(fs::exists(run()));
  }
}

TEST_F(ServerPathTest, DirectoryStaysIfItWasThereOrIsInUse) {
  fs::create_directory(run());
  start();
  finish();
  server_.reset();
  EXPECT_TRUE(fs::is_empty(run()));
  fs::remove(run());

  start();
  std::ofstream(run() + "/other") << "of somebody else";
  finish();
  server_.reset();
  EXPECT_EQ(std::distance(fs::directory_iterator(run()), {}), 1);
  fs::remove_all(run());
}

TEST_F(ServerPathTest, PathThatIsNotPossible) {
  config_.socket = folder_ + "/" + std::string(108 - folder_.size() - 1, 'x');
  ASSERT_EQ(config_.socket.size(), 108U);
  EXPECT_EQ(refusal(),
            "the path of the socket, " + config_.socket + ", has 108 bytes; at most 107 are possible (socket)");
  config_.socket.pop_back();
  EXPECT_EQ(refusal(), "");
  config_.socket.clear();
  EXPECT_THAT(refusal(), HasSubstr("empty"));
  config_.socket = folder_ + "/not/there/node.sock";
  EXPECT_EQ(refusal(), "cannot create the directory " + folder_ +
                           "/not/there for the socket: No such file or directory; create it for this user, or choose "
                           "another path for the socket (socket, or --set socket=PATH)");
  std::ofstream(folder_ + "/file") << "x";
  config_.socket = folder_ + "/file/node.sock";
  EXPECT_THAT(refusal(), StartsWith("cannot "));
  config_.socket = folder_ + "/file";
  EXPECT_THAT(refusal(), StartsWith(folder_ + "/file exists and is not a socket"));
  EXPECT_TRUE(fs::is_regular_file(folder_ + "/file"));
  fs::remove(folder_ + "/file");
}

TEST_F(ServerPathTest, SecondServerIsRefused) {
  start();
  const std::string taken = "another daemon listens on " + config_.socket +
                            "; stop it, or give this one another path (socket, or --set socket=PATH)";
  EXPECT_EQ(refusal(), taken);
  const RawClient client = welcomed();  // the first server still works
  // A second server is refused even if the first one accepts no trainers any more.
  server_->close("over", now());
  EXPECT_EQ(refusal(), taken);
}

TEST_F(ServerPathTest, SecondServerIsRefusedThatFindsNoSocketFile) {
  start();
  fs::remove(config_.socket);
  EXPECT_THAT(refusal(), StartsWith("another daemon listens on "));
}

TEST_F(ServerPathTest, OtherProgramThatListensIsLeftAlone) {
  fs::create_directory(run());
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
    const FileDescriptor other = bound(config_.socket, type);
    ASSERT_EQ(listen(other.get(), 0), 0);
    EXPECT_THAT(refusal(), StartsWith("another daemon listens on "));
    EXPECT_TRUE(fs::is_socket(config_.socket));
    EXPECT_FALSE(fs::exists(config_.socket + ".lock"));
    fs::remove(config_.socket);
  }
  fs::remove(run());
}

TEST_F(ServerPathTest, WhatADeadDaemonLeftIsReplaced) {
  fs::create_directory(run());
  (void)bound(config_.socket, SOCK_SEQPACKET);
  std::ofstream(config_.socket + ".lock") << "";
  start();
  const RawClient client = welcomed();
  finish();
  server_.reset();
  EXPECT_TRUE(fs::is_empty(run()));
  fs::remove(run());
}

TEST_F(ServerPathTest, OnlyOneOfManyStarts) {
  fs::create_directory(run());
  lanes_ = std::make_unique<FakeLanes>(config_.lanes, config_.trainers, config_.local_reduce);
  for (int round = 0; round < 20; ++round) {
    (void)bound(config_.socket, SOCK_SEQPACKET);  // a stale file, which all servers want to replace
    std::vector<std::unique_ptr<Server>> servers(4);
    std::vector<std::thread> threads;
    std::atomic<int> refused{0};
    for (auto& server : servers) {
      threads.emplace_back([&] {
        try {
          server = std::make_unique<Server>(config_, lanes_->interface());
          server->open();
        } catch (const SetupError&) {
          ++refused;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(refused, 3);
    const RawClient client = connect();  // the file belongs to the server that started
  }
  fs::remove(run());
}

TEST_F(ServerPathTest, FileOfSomebodyElseIsNotRemoved) {
  start();
  fs::remove(config_.socket);
  const FileDescriptor other = bound(config_.socket, SOCK_SEQPACKET);
  finish();
  server_.reset();
  EXPECT_TRUE(fs::is_socket(config_.socket));
  fs::remove(config_.socket);
  fs::remove(run());
}

}  // namespace
}  // namespace gradlane::test::server_path_test
