// fork_test.cc - tests of children of fork() with their parent's context: calls are refused, the parent is unaffected
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "tests/client/wait_fixture.h"

namespace {
const pid_t kParent = getpid();
}  // namespace

// The leak sanitizer calls this function at exit(). In a child, memory that only the stack of the daemon's thread
// points to would count as leaked.
extern "C" int __lsan_is_turned_off() { return getpid() != kParent ? 1 : 0; }

namespace gradlane::test::fork_test {
namespace {

using Fork = Wait;
INSTANTIATE_TEST_SUITE_P(Modes, Fork, testing::ValuesIn(kModes), mode_name);

// Runs `work` in a child of fork(), which has only the calling thread, so no daemon. Returns the text that `work`
// returns: "" means success.
std::string in_child(const std::function<std::string()>& work) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const std::string text = work();
    if (write(ends[1], text.data(), text.size()) != static_cast<ssize_t>(text.size())) _exit(2);
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char some[512];
  for (ssize_t got; (got = read(ends[0], static_cast<char*>(some), sizeof(some))) > 0;) {
    said.append(static_cast<char*>(some), static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return said;
}

TEST_P(Fork, EveryCallOfTheChildIsRefused) {
  open_manual();
  const gradlane_request before = start(0);
  data_[100] = 1.5F;
  gradlane_context* const gl = gl_.get();
  const pid_t parent = getpid();
  const auto said = in_child([&] {
    std::string wrong;
    const auto refused = [&](const char* what, bool is_bad) {
      const std::string text = gradlane_error(gl);
      const std::string wanted = "process " + std::to_string(parent) + " opened this context, and this is its child " +
                                 std::to_string(getpid()) + " (fork): open a new context in the child";
      if (!is_bad || text.find(wanted) == std::string::npos) wrong += std::string(what) + ": " + text + "\n";
    };
    gradlane_request request = 0;
    void* buffer = nullptr;
    gradlane_figures figures{};
    figures.struct_size = sizeof(figures);
    constexpr auto kBad = GRADLANE_BAD_ARGUMENT;
    refused("reduce", gradlane_all_reduce(gl, data_ + 200, 10, GRADLANE_FLOAT32, nullptr, &request) == kBad);
    refused("barrier", gradlane_barrier(gl, nullptr, nullptr) == kBad);
    refused("wait", gradlane_wait(gl, before, -1) == kBad);
    refused("test", gradlane_test(gl, before) == kBad);
    refused("cancel", gradlane_cancel(gl, before) == kBad);
    refused("resume", gradlane_resume(gl, 7) == kBad);
    refused("alloc", gradlane_alloc(gl, 5 << 20, &buffer) == kBad);
    refused("free", gradlane_free(gl, data_) == kBad);
    refused("fd", gradlane_fd(gl) == -1);
    refused("figures", gradlane_get_figures(gl, &figures) == kBad);
    gradlane_disconnect(gl);
    refused("disconnect", true);
    if (gradlane_rank(gl) != 0 || gradlane_world(gl) != 1) wrong += "rank and world\n";
    return wrong;
  });
  EXPECT_EQ(said, "");
  EXPECT_EQ(data_[100], 1.5F);
  complete(before);
  EXPECT_EQ(wait(before), GRADLANE_OK);
  const gradlane_request after = start(1);
  complete(after);
  EXPECT_EQ(wait(after), GRADLANE_OK) << gradlane_error(gl);
  EXPECT_TRUE(daemon_->await_seen(0, 2));
  EXPECT_EQ(daemon_->seen(0).size(), 2U);
}

TEST_P(Fork, TheChildMayCloseIt) {
  open_manual();
  const gradlane_request request = start(0);
  const int fd = gradlane_fd(gl_.get());
  data_[100] = 1.5F;
  const auto said = in_child([&] {
    gradlane_close(gl_.release());
    return std::string();
  });
  EXPECT_EQ(said, "");
  EXPECT_EQ(data_[100], 1.5F);
  EXPECT_EQ(gradlane_test(gl_.get(), request), GRADLANE_PENDING) << gradlane_error(gl_.get());
  complete(request);
  pollfd wanted{fd, POLLIN, 0};
  EXPECT_EQ(poll(&wanted, 1, kLong), 1);
  EXPECT_EQ(wait(request), GRADLANE_OK) << gradlane_error(gl_.get());
}

// A child that exits runs all exit handlers of the process, as a Python worker does.
TEST_P(Fork, TheChildMayExit) {
  open();
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) exit(0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(gradlane_barrier(gl_.get(), nullptr, nullptr), GRADLANE_OK) << gradlane_error(gl_.get());
  }
}

// A child that outlives the parent's close() still has the socket. Closing the context must end the connection
// nevertheless.
TEST_P(Fork, TheParentsCloseGivesTheRankBack) {
  open();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    close(ends[1]);
    _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);  // waits until the parent has finished
  }
  close(ends[0]);
  gl_.reset();
  EXPECT_TRUE(daemon_->await_gone());
  close(ends[1]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A killed process closes nothing. Its child has called gradlane_disconnect(), so it does not hold the connection open.
TEST_P(Fork, AChildThatOutlivesItsParent) {
  open();
  const FakeDaemon* const daemon = daemon_.get();
  gl_.reset();
  ASSERT_TRUE(daemon_->await_gone());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    alarm(20);
    const gradlane_options options = options_for(daemon->path(), -1, -1);
    gradlane_context* own = nullptr;
    if (gradlane_open(&own, &options) != GRADLANE_OK || gradlane_barrier(own, nullptr, nullptr) != GRADLANE_OK)
      _exit(1);
    int ready[2];
    if (pipe(ready) != 0) _exit(2);
    if (fork() == 0) {
      gradlane_disconnect(own);
      char byte = 0;
      close(ends[1]);
      // The child lives until the test has finished.
      if (write(ready[1], &byte, 1) == 1 && read(ends[0], &byte, 1) == 0) _exit(0);
      _exit(3);
    }
    char byte;
    _exit(read(ready[0], &byte, 1) == 1 ? 0 : 4);
  }
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(daemon_->await_gone());
  close(ends[1]);
}

TEST_P(Fork, TheChildOpensItsOwn) {
  open();
  const FakeDaemon* const daemon = daemon_.get();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    gradlane_close(gl_.release());
    const gradlane_options options = options_for(daemon->path(), -1, -1);
    gradlane_context* own = nullptr;
    _exit(gradlane_open(&own, &options) == GRADLANE_OK && gradlane_barrier(own, nullptr, nullptr) == GRADLANE_OK ? 0
                                                                                                                 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gradlane::test::fork_test
