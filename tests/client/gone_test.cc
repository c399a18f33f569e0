// gone_test.cc - tests of a daemon that ends or writes garbage, and of event loops
#include <poll.h>
#include <unistd.h>

#include <thread>

#include "tests/client/wait_fixture.h"

namespace gradlane::test::gone_test {
namespace {

using Gone = Wait;
INSTANTIATE_TEST_SUITE_P(Modes, Gone, testing::ValuesIn(kModes), mode_name);

TEST_P(Gone, GoodbyeWhileWaiting) {
  open_manual();
  const gradlane_request first = start(0);
  const gradlane_request second = start(1);
  const gradlane_request done = start(2);
  complete(done);
  std::thread later([&] {
    await_waiting();
    daemon_->goodbye("shut down by SIGTERM");
  });
  EXPECT_EQ(wait(first), GRADLANE_DAEMON_GONE);
  later.join();
  EXPECT_SAYS(gl_.get(), daemon_->path());
  EXPECT_SAYS(gl_.get(), "shut down by SIGTERM");
  EXPECT_EQ(wait(second), GRADLANE_DAEMON_GONE);
  EXPECT_EQ(wait(done), GRADLANE_OK);  // this request had ended before the daemon
  EXPECT_EQ(gradlane_barrier(gl_.get(), nullptr, nullptr), GRADLANE_DAEMON_GONE);
}

TEST_P(Gone, EndWithoutAWord) {
  open_manual();
  const gradlane_request request = start();
  daemon_->hang_up();
  gradlane_code code = GRADLANE_PENDING;
  while ((code = gradlane_test(gl_.get(), request)) == GRADLANE_PENDING) std::this_thread::yield();
  EXPECT_EQ(code, GRADLANE_DAEMON_GONE);
  EXPECT_SAYS(gl_.get(), "(pid " + std::to_string(getpid()) + ") has ended");
}

TEST_P(Gone, Disconnect) {
  open_manual();
  const gradlane_request request = start();
  data_[0] = 1.5F;
  gradlane_disconnect(gl_.get());
  EXPECT_EQ(wait(request), GRADLANE_DAEMON_GONE);
  EXPECT_SAYS(gl_.get(), "has disconnected");
  EXPECT_EQ(data_[0], 1.5F);
  EXPECT_EQ(gradlane_barrier(gl_.get(), nullptr, nullptr), GRADLANE_DAEMON_GONE);
  gradlane_disconnect(gl_.get());
  gradlane_disconnect(nullptr);
  const Context next = open_context(*daemon_);
  EXPECT_EQ(data_[0], 1.5F);
  EXPECT_EQ(gradlane_free(gl_.get(), data_), GRADLANE_OK);
}

TEST_P(Gone, MessageOutOfTurn) {
  open_manual();
  const gradlane_request request = start();
  daemon_->send_raw(GL_MSG_SEGMENT);
  gradlane_code code = GRADLANE_PENDING;
  while ((code = gradlane_test(gl_.get(), request)) == GRADLANE_PENDING) std::this_thread::yield();
  EXPECT_EQ(code, GRADLANE_DAEMON_GONE);
  EXPECT_SAYS(gl_.get(), "unexpected message, type 4");
}

TEST_P(Gone, GarbageCounts) {
  const unsigned last = GetParam().lanes - 1;
  open_manual();
  gradlane_request request = start();
  daemon_->set_complete_tail(last, 65);
  EXPECT_EQ(wait(request), GRADLANE_DAEMON_GONE);
  EXPECT_SAYS(gl_.get(), "impossible contents");
  open_manual();
  request = start();
  daemon_->set_complete_tail(last, 0xffffffffU);
  EXPECT_EQ(wait(request), GRADLANE_DAEMON_GONE);
  open_manual();
  daemon_->set_submit_head(last, 1);
  EXPECT_EQ(gradlane_barrier(gl_.get(), nullptr, nullptr), GRADLANE_DAEMON_GONE);
  EXPECT_SAYS(gl_.get(), "impossible count");
}

TEST_P(Gone, GarbageCompletions) {
  const uint64_t wrong_cookies[] = {0, 2, 0xff, 1 << 24, ~uint64_t{0}};
  for (const uint64_t cookie : wrong_cookies) {
    open_manual();
    const gradlane_request request = start();
    daemon_->complete(0, cookie);
    EXPECT_EQ(wait(request), GRADLANE_DAEMON_GONE) << cookie;
  }
  for (const int32_t code : {1, 2, -1, -3, -100, INT32_MIN}) {
    open_manual();
    const gradlane_request request = start();
    daemon_->complete(0, cookie_of(request), code, "?");
    EXPECT_EQ(wait(request), GRADLANE_DAEMON_GONE) << code;
  }
  if (GetParam().lanes == 1) return;
  open_manual();
  const gradlane_request request = start();
  daemon_->complete(0, cookie_of(request));
  daemon_->complete(0, cookie_of(request));  // twice by the same lane
  EXPECT_EQ(wait(request), GRADLANE_DAEMON_GONE);
  EXPECT_SAYS(gl_.get(), "impossible contents");
}

// ---- Event loops

bool readable(int fd, int timeout_ms = 0) {
  pollfd wanted{fd, POLLIN, 0};
  return poll(&wanted, 1, timeout_ms) == 1;
}

TEST_P(Gone, FileDescriptor) {
  open_manual();
  const int fd = gradlane_fd(gl_.get());
  ASSERT_GE(fd, 0);
  EXPECT_EQ(gradlane_fd(gl_.get()), fd);
  EXPECT_FALSE(readable(fd));
  const gradlane_request first = start(0);
  const gradlane_request second = start(1);
  EXPECT_FALSE(readable(fd));
  complete(first);
  complete(second);
  EXPECT_TRUE(readable(fd, kLong));
  EXPECT_EQ(gradlane_test(gl_.get(), first), GRADLANE_OK);
  // The end of the second request was not reported yet.
  EXPECT_TRUE(readable(fd));
  EXPECT_EQ(gradlane_test(gl_.get(), second), GRADLANE_OK);
  EXPECT_FALSE(readable(fd));
  const gradlane_request third = start(2);
  EXPECT_EQ(wait(third, 20), GRADLANE_PENDING);
  EXPECT_EQ(daemon_->waiting(), 1U);  // waits leave the flag set, for the event loop
  complete(third);
  EXPECT_TRUE(readable(fd, kLong));
  EXPECT_EQ(wait(third), GRADLANE_OK);
  daemon_->hang_up();
  EXPECT_TRUE(readable(fd, kLong));
  EXPECT_EQ(gradlane_barrier(gl_.get(), nullptr, nullptr), GRADLANE_DAEMON_GONE);
  EXPECT_TRUE(readable(fd));
}

TEST_P(Gone, FileDescriptorOfWhatWasOverBefore) {
  open_manual();
  const gradlane_request request = start();
  complete(request);
  const int fd = gradlane_fd(gl_.get());
  EXPECT_TRUE(readable(fd));
  EXPECT_EQ(gradlane_test(gl_.get(), request), GRADLANE_OK);
  EXPECT_FALSE(readable(fd));
}

}  // namespace
}  // namespace gradlane::test::gone_test
