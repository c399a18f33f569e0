// open_test.cc - tests of gradlane_open(): connecting, and every way in which it can fail
#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "tests/client/client_fixture.h"
#include "tests/client/sleeps.h"

namespace gradlane::test::open_test {
namespace {

constexpr int kLong = 600'000;  // ms; a passing test never waits this long

class Open : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* const name : {"GRADLANE_SOCKET", "RANK", "XDG_RUNTIME_DIR"}) unsetenv(name);
  }

  gradlane_code open_at(const std::string& path, int timeout_ms = 0, int rank = -1) {
    gradlane_options options = options_for(path, timeout_ms);
    options.rank = rank;
    gradlane_context* gl = nullptr;
    const gradlane_code code = gradlane_open(&gl, &options);
    EXPECT_EQ(gl != nullptr, code == GRADLANE_OK);
    gradlane_close(gl);
    return code;
  }
};

size_t open_files() {
  size_t count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

TEST_F(Open, TellsWhatTheDaemonSays) {
  FakeDaemon daemon({.lanes = 2, .rank = 3, .world = 5, .codec = "fixed:7"});
  const Context gl = open_context(daemon);
  ASSERT_NE(gl, nullptr);
  EXPECT_EQ(gradlane_rank(gl.get()), 3);
  EXPECT_EQ(gradlane_world(gl.get()), 5);
  EXPECT_STREQ(gradlane_codec(gl.get()), "fixed:7");
  EXPECT_GE(gradlane_version(), GRADLANE_API_VERSION);
}

TEST_F(Open, TakesSocketAndRankFromTheEnvironment) {
  FakeDaemon daemon({.rank = 2, .world = 3});
  setenv("GRADLANE_SOCKET", daemon.path().c_str(), 1);
  setenv("RANK", "2", 1);
  gradlane_context* gl = nullptr;
  ASSERT_EQ(gradlane_open(&gl, nullptr), GRADLANE_OK) << gradlane_error(nullptr);
  gradlane_close(gl);
  setenv("RANK", "1", 1);
  EXPECT_EQ(gradlane_open(&gl, nullptr), GRADLANE_NO_DAEMON);
  EXPECT_SAYS(nullptr, "rank 1 is not of this node");
  for (const char* text : {"two", "1x", "-1", "99999999999"}) {
    setenv("RANK", text, 1);
    EXPECT_EQ(gradlane_open(&gl, nullptr), GRADLANE_BAD_ARGUMENT) << text;
    EXPECT_SAYS(nullptr, text);
  }
}

TEST_F(Open, ExplicitRankBeatsTheEnvironment) {
  FakeDaemon daemon({.rank = 2, .world = 3});
  setenv("RANK", "nonsense", 1);
  EXPECT_EQ(open_at(daemon.path(), kLong, 2), GRADLANE_OK);
}

TEST_F(Open, AnyRankDoesNotReadTheEnvironment) {
  FakeDaemon daemon({.rank = 2, .world = 3});
  for (const char* text : {"0", "nonsense"}) {
    setenv("RANK", text, 1);
    EXPECT_EQ(open_at(daemon.path(), kLong, GRADLANE_ANY_RANK), GRADLANE_OK) << gradlane_error(nullptr);
  }
}

TEST_F(Open, BadArguments) {
  EXPECT_EQ(gradlane_open(nullptr, nullptr), GRADLANE_BAD_ARGUMENT);
  gradlane_context* gl = nullptr;
  EXPECT_EQ(open_at("/tmp/" + std::string(200, 'x')), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(nullptr, "205 characters; the limit is 107");
  gradlane_options options = options_for("/tmp/x");
  options.struct_size = 7;
  EXPECT_EQ(gradlane_open(&gl, &options), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(nullptr, "GRADLANE_OPTIONS_INIT");
}

TEST_F(Open, NobodyThere) {
  EXPECT_EQ(open_at("/tmp/gradlane-no-such-socket", 50), GRADLANE_NO_DAEMON);
  EXPECT_SAYS(nullptr, "no daemon at /tmp/gradlane-no-such-socket: No such file or directory; is gradlaned running");
}

TEST_F(Open, ItIsForOthers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  const std::string path = "/tmp/gradlane-closed-" + std::to_string(getpid());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(static_cast<char*>(address.sun_path), sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(seteuid(65534), 0);
  EXPECT_EQ(open_at(path.c_str(), 50), GRADLANE_NO_DAEMON);
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_SAYS(nullptr, "Permission denied; add this user to the socket's group");
  close(fd);
  unlink(path.c_str());
}

TEST_F(Open, SomethingElseIsThere) {
  const std::string path = "/tmp/gradlane-stream-" + std::to_string(getpid());
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(static_cast<char*>(address.sun_path), sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  EXPECT_EQ(open_at(path, kLong), GRADLANE_NO_DAEMON);
  EXPECT_SAYS(nullptr, path);
  close(fd);
  unlink(path.c_str());
}

TEST_F(Open, WaitsForADaemonThatIsStarting) {
  // The path is known before the daemon exists.
  const std::string link = "/tmp/gradlane-late-" + std::to_string(getpid());
  std::unique_ptr<FakeDaemon> daemon;
  unsigned sleeps = 0;
  const DuringSleeps later([&] {
    if (++sleeps > 1) return;
    daemon = std::make_unique<FakeDaemon>(FakeDaemon::Settings{.hang_ups = 2});
    EXPECT_EQ(symlink(daemon->path().c_str(), link.c_str()), 0);
  });
  EXPECT_EQ(open_at(link, kLong), GRADLANE_OK) << gradlane_error(nullptr);
  EXPECT_EQ(sleeps, 3U) << "before it came, and after each time it hung up";
  unlink(link.c_str());
}

TEST_F(Open, HangUpWithoutTimeLeft) {
  FakeDaemon daemon({.hang_ups = 1000000});
  EXPECT_EQ(open_at(daemon.path(), 0), GRADLANE_NO_DAEMON);
  EXPECT_SAYS(nullptr, "no daemon at " + daemon.path());
}

TEST_F(Open, DaemonThatDoesNotAnswer) {
  // The socket listens, but no thread accepts.
  const std::string path = "/tmp/gradlane-mute-" + std::to_string(getpid());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(static_cast<char*>(address.sun_path), sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  EXPECT_EQ(open_at(path, 0), GRADLANE_NO_DAEMON);
  EXPECT_SAYS(nullptr, "does not answer");
  close(fd);
  unlink(path.c_str());
}

TEST_F(Open, Refusals) {
  FakeDaemon full({.refusal = "rank 0 is taken by pid 17"});
  EXPECT_EQ(open_at(full.path()), GRADLANE_NO_DAEMON);
  EXPECT_SAYS(nullptr, "rank 0 is taken by pid 17");
  FakeDaemon other({.refusal = "client speaks version 1, daemon 2", .refused_version = 2});
  EXPECT_EQ(open_at(other.path()), GRADLANE_VERSION);
  EXPECT_SAYS(nullptr, "daemon 2");
}

TEST_F(Open, ARefusedRankHearsOfTheRing) {
  const char* socket = nullptr;
  FakeDaemon of_another({.refusal = "rank 7 is not on this node", .refused_world = 6});
  EXPECT_EQ(open_at(of_another.path()), GRADLANE_NO_DAEMON);
  EXPECT_EQ(gradlane_refused_by(&socket), 6);
  EXPECT_EQ(std::string(socket), of_another.path());
  EXPECT_EQ(gradlane_refused_by(nullptr), 6);
  // The text of an older daemon is longer and takes the place of the number of ranks.
  FakeDaemon older({.refusal = std::string(GL_TEXT, 'x'), .refused_bytes = GL_TEXT});
  EXPECT_EQ(open_at(older.path()), GRADLANE_NO_DAEMON);
  EXPECT_EQ(gradlane_refused_by(&socket), 0);
  EXPECT_EQ(open_at(of_another.path()), GRADLANE_NO_DAEMON);
  FakeDaemon taken({.refusal = "rank 0 is taken by pid 17"});
  EXPECT_EQ(open_at(taken.path()), GRADLANE_NO_DAEMON);
  EXPECT_EQ(gradlane_refused_by(&socket), 0);
}

struct WelcomeCase {
  const char* name;
  std::function<void(gl_welcome&, std::vector<int>&)> change;
};

TEST_F(Open, WelcomesThatMakeNoSense) {
  const WelcomeCase cases[] = {
      {"no lanes", [](gl_welcome& w, std::vector<int>&) { w.lanes = 0; }},
      {"too many lanes", [](gl_welcome& w, std::vector<int>&) { w.lanes = GL_MAX_LANES + 1; }},
      {"no world", [](gl_welcome& w, std::vector<int>&) { w.world = 0; }},
      {"huge world", [](gl_welcome& w, std::vector<int>&) { w.world = 0x80000000U; }},
      {"rank", [](gl_welcome& w, std::vector<int>&) { w.rank = w.world; }},
      {"control bytes", [](gl_welcome& w, std::vector<int>&) { w.control_bytes -= 1; }},
      {"huge control", [](gl_welcome& w, std::vector<int>&) { w.control_bytes = uint64_t{1} << 40; }},
      {"codec", [](gl_welcome& w, std::vector<int>&) { memset(w.codec, 'x', GL_NAME); }},
      {"few fds", [](gl_welcome&, std::vector<int>& fds) { fds.pop_back(); }},
      {"no fds", [](gl_welcome&, std::vector<int>& fds) { fds.clear(); }},
      {"many fds", [](gl_welcome&, std::vector<int>& fds) { fds.insert(fds.end(), 30, fds.back()); }},
      {"type", [](gl_welcome& w, std::vector<int>&) { w.type = GL_MSG_SEGMENT; }},
      {"lanes differ",
       [](gl_welcome& w, std::vector<int>& fds) {
         w.lanes = 1;
         fds.pop_back();
       }},
  };
  for (const WelcomeCase& it : cases) {
    FakeDaemon daemon({.lanes = 2, .welcome = it.change});
    const size_t before = open_files();
    EXPECT_LT(open_at(daemon.path(), 200), 0) << it.name;
    EXPECT_STRNE(gradlane_error(nullptr), "") << it.name;
    // The library has closed the descriptors that it got. The daemon may still have both ends of three bells and the
    // memory.
    EXPECT_LE(open_files(), before + 9) << it.name;
  }
}

TEST_F(Open, LeaksNothing) {
  FakeDaemon daemon({.lanes = 3});
  { const Context first = open_context(daemon); }
  size_t before = 0;
  for (int i = 0; i < 40; ++i) {
    const Context gl = open_context(daemon);
    ASSERT_NE(allocate(gl, 1000), nullptr);
    ASSERT_GE(gradlane_fd(gl.get()), 0);
    if (i == 0) before = open_files();
  }
  const Context gl = open_context(daemon);
  EXPECT_LE(open_files(), before);
}

TEST_F(Open, DescriptorsDoNotSurviveExec) {
  std::vector<bool> there(256);
  for (int fd = 0; fd < 256; ++fd) there[static_cast<size_t>(fd)] = fcntl(fd, F_GETFD) >= 0;
  FakeDaemon daemon({.lanes = 2});
  const Context gl = open_context(daemon);
  ASSERT_GE(gradlane_fd(gl.get()), 0);
  int seen = 0;
  for (int fd = 0; fd < 256; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags < 0 || there[static_cast<size_t>(fd)]) continue;
    ++seen;
    EXPECT_NE(flags & FD_CLOEXEC, 0) << fd;
  }
  EXPECT_GE(seen, 6);
}

TEST_F(Open, NullContexts) {
  gradlane_close(nullptr);
  gradlane_resume(nullptr, 1);
  EXPECT_EQ(gradlane_rank(nullptr), -1);
  EXPECT_EQ(gradlane_world(nullptr), -1);
  EXPECT_STREQ(gradlane_codec(nullptr), "");
  EXPECT_EQ(gradlane_barrier(nullptr, nullptr, nullptr), GRADLANE_BAD_ARGUMENT);
  EXPECT_EQ(gradlane_wait(nullptr, 1, -1), GRADLANE_BAD_ARGUMENT);
  EXPECT_EQ(gradlane_test(nullptr, 1), GRADLANE_BAD_ARGUMENT);
  EXPECT_EQ(gradlane_cancel(nullptr, 1), GRADLANE_BAD_ARGUMENT);
  EXPECT_EQ(gradlane_fd(nullptr), -1);
  EXPECT_EQ(gradlane_free(nullptr, nullptr), GRADLANE_BAD_ARGUMENT);
  void* buffer = nullptr;
  EXPECT_EQ(gradlane_alloc(nullptr, 1, &buffer), GRADLANE_BAD_ARGUMENT);
  gradlane_figures figures{};
  EXPECT_EQ(gradlane_get_figures(nullptr, &figures), GRADLANE_BAD_ARGUMENT);
}

}  // namespace
}  // namespace gradlane::test::open_test
