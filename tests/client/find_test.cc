// find_test.cc - tests of how the library finds the daemon's socket if no socket is named
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/client/client_fixture.h"
#include "tests/client/sleeps.h"

namespace gradlane::test::find_test {
namespace {

namespace fs = std::filesystem;

constexpr int kLong = 600'000;  // ms; a passing test never waits this long

// XDG_RUNTIME_DIR is the test's own. The other folders are the machine's, so the tests are skipped if it has daemons
// there.
class Find : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* const name : {"GRADLANE_SOCKET", "RANK"}) unsetenv(name);
    // All tests that use this user's folder in /tmp take this lock.
    lock_ = ::open("/tmp/gradlane-tests.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    (void)flock(lock_, LOCK_EX);
    if (fs::exists("/run/gradlane") || fs::exists(in_tmp_)) GTEST_SKIP() << "this machine has daemons";
    char folder[] = "/tmp/gradlane-find-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    runtime_ = folder;
    setenv("XDG_RUNTIME_DIR", folder, 1);
    fs::create_directory(runtime_ / "gradlane");
  }
  void TearDown() override {
    unsetenv("XDG_RUNTIME_DIR");
    for (const int fd : sockets_) close(fd);
    if (runtime_.empty()) {
      close(lock_);
      return;
    }
    fs::remove_all(runtime_);
    if (made_in_tmp_) fs::remove_all(in_tmp_);
    close(lock_);
  }

  // Makes a socket with that path, on which a daemon listens if `listens`.
  fs::path make_socket(const fs::path& path, bool listens) {
    sockets_.push_back(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.string().copy(static_cast<char*>(address.sun_path), sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(sockets_.back(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0) << path;
    EXPECT_EQ(listens ? listen(sockets_.back(), 8) : 0, 0);
    return path;
  }
  fs::path in_runtime(const char* name) { return runtime_ / "gradlane" / name; }
  // Moves the daemon's socket to another path.
  static void move(const FakeDaemon& daemon, const fs::path& to) { fs::rename(daemon.path(), to); }

  static gradlane_code open(int timeout_ms) {
    gradlane_options options = GRADLANE_OPTIONS_INIT;
    options.timeout_ms = timeout_ms;
    gradlane_context* gl = nullptr;
    const gradlane_code code = gradlane_open(&gl, &options);
    gradlane_close(gl);
    return code;
  }

  fs::path runtime_;
  const fs::path in_tmp_ = "/tmp/gradlane-" + std::to_string(geteuid());
  bool made_in_tmp_ = false;
  int lock_ = -1;
  std::vector<int> sockets_;
};

TEST_F(Find, NothingThere) {
  EXPECT_EQ(open(50), GRADLANE_NO_DAEMON);
  EXPECT_SAYS(nullptr, "no socket is named, and there is none in /run/gradlane, " + (runtime_ / "gradlane").string() +
                           " or " + in_tmp_.string() + ": is gradlaned running? Set GRADLANE_SOCKET");
  setenv("XDG_RUNTIME_DIR", "relative", 1);
  EXPECT_EQ(open(0), GRADLANE_NO_DAEMON);
  EXPECT_SAYS(nullptr, "none in /run/gradlane or " + in_tmp_.string());
}

TEST_F(Find, WaitsForADaemonThatIsStarting) {
  std::unique_ptr<FakeDaemon> daemon;
  fs::remove(runtime_ / "gradlane");
  const DuringSleeps later([&] {
    daemon = std::make_unique<FakeDaemon>(FakeDaemon::Settings{});
    fs::create_directory(runtime_ / "gradlane");
    move(*daemon, in_runtime("node0.sock"));
  });
  EXPECT_EQ(open(kLong), GRADLANE_OK) << gradlane_error(nullptr);
  EXPECT_NE(daemon, nullptr) << "it was not waited for";
}

TEST_F(Find, TakesTheOneThatAccepts) {
  make_socket(in_runtime("dead.sock"), false);
  EXPECT_EQ(open(0), GRADLANE_NO_DAEMON);
  EXPECT_SAYS(nullptr, "no daemon listens on " + in_runtime("dead.sock").string());
  std::ofstream(in_runtime("file.sock")) << "x";
  make_socket(in_runtime("node0.admin"), true);
  const FakeDaemon daemon({});
  move(daemon, in_runtime("node0.sock"));
  fs::create_symlink("node0.sock", in_runtime("link.sock"));
  EXPECT_EQ(open(kLong), GRADLANE_OK) << gradlane_error(nullptr);
}

TEST_F(Find, SeveralFailAtOnce) {
  make_socket(in_runtime("a.sock"), true);
  make_socket(in_runtime("b.sock"), true);
  EXPECT_EQ(open(1'000'000'000), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(nullptr, "there are 2 in " + (runtime_ / "gradlane").string() + ": set GRADLANE_SOCKET");
}

TEST_F(Find, OwnFolderInTmp) {
  const FakeDaemon daemon({});
  make_socket(in_runtime("dead.sock"), false);
  made_in_tmp_ = true;
  fs::create_directory(in_tmp_);
  move(daemon, in_tmp_ / "node0.sock");
  fs::permissions(in_tmp_, fs::perms::owner_all | fs::perms::group_write);
  EXPECT_EQ(open(0), GRADLANE_NO_DAEMON);
  fs::permissions(in_tmp_, fs::perms::owner_all);
  EXPECT_EQ(open(kLong), GRADLANE_OK) << gradlane_error(nullptr);
  // A link to a folder is refused, as anybody may have made it.
  fs::rename(in_tmp_, runtime_ / "real");
  fs::create_directory_symlink(runtime_ / "real", in_tmp_);
  EXPECT_EQ(open(0), GRADLANE_NO_DAEMON);
}

// The kernel remembers which user called listen().
TEST_F(Find, RefusesDaemonsOfOthers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  const fs::path path = make_socket(in_runtime("node0.sock"), false);
  constexpr uid_t kNobody = 65534;
  ASSERT_EQ(seteuid(kNobody), 0);
  EXPECT_EQ(listen(sockets_.back(), 8), 0);
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_EQ(open(50), GRADLANE_NO_DAEMON);
  EXPECT_SAYS(nullptr, "the daemon at " + path.string() + " belongs to user 65534, not to root or this user (0); " +
                           "to trust it, set GRADLANE_SOCKET=" + path.string());
  // A socket that the user names is not checked for its owner.
  setenv("GRADLANE_SOCKET", path.c_str(), 1);
  EXPECT_EQ(open(0), GRADLANE_NO_DAEMON);
  EXPECT_SAYS(nullptr, "does not answer");
  unsetenv("GRADLANE_SOCKET");
  // The other user's daemon does not hide this user's own daemon.
  const FakeDaemon daemon({});
  move(daemon, in_runtime("node1.sock"));
  EXPECT_EQ(open(kLong), GRADLANE_OK) << gradlane_error(nullptr);
}

}  // namespace
}  // namespace gradlane::test::find_test
