// wait_test.cc - tests of how requests end: waiting, testing, cancelling, failing
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>

#include "tests/client/wait_fixture.h"

namespace gradlane::test::wait_test {
namespace {

INSTANTIATE_TEST_SUITE_P(Modes, Wait, testing::ValuesIn(kModes), mode_name);

TEST_P(Wait, ManyInARow) {
  open();
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_, 100, GRADLANE_FLOAT32, nullptr, nullptr), GRADLANE_OK);
  }
}

TEST_P(Wait, ManyAtOnceOverTheWrapOfTheCounts) {
  open({.first_count = 0xffffffffU - 150});
  for (int round = 0; round < 8; ++round) {
    std::vector<gradlane_request> requests;
    for (size_t i = 0; i < GL_SLOTS; ++i) requests.push_back(start(i));
    if (round % 2 == 1) std::reverse(requests.begin(), requests.end());
    for (const gradlane_request request : requests) ASSERT_EQ(wait(request), GRADLANE_OK);
  }
}

TEST_P(Wait, OutOfOrder) {
  open_manual(0xfffffffeU);
  const gradlane_request first = start(0);
  const gradlane_request second = start(1);
  const gradlane_request third = start(2);
  complete(third);
  complete(first);
  EXPECT_EQ(wait(first), GRADLANE_OK);
  EXPECT_EQ(gradlane_test(gl_.get(), second), GRADLANE_PENDING);
  EXPECT_EQ(wait(third), GRADLANE_OK);
  complete(second);
  EXPECT_EQ(wait(second), GRADLANE_OK);
}

TEST_P(Wait, OverWhenAllLanesAre) {
  open_manual();
  const gradlane_request request = start();
  for (unsigned i = 0; i < GetParam().lanes; ++i) {
    EXPECT_EQ(gradlane_test(gl_.get(), request), GRADLANE_PENDING);
    daemon_->complete(i, cookie_of(request));
  }
  EXPECT_EQ(gradlane_test(gl_.get(), request), GRADLANE_OK);
  EXPECT_EQ(gradlane_test(gl_.get(), request), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl_.get(), "no request " + std::to_string(request));
}

TEST_P(Wait, WokenUpLater) {
  open_manual();
  for (int i = 0; i < 20; ++i) {
    const gradlane_request request = start();
    std::thread later([&] {
      await_waiting();
      complete(request);
    });
    EXPECT_EQ(wait(request, -1), GRADLANE_OK);
    later.join();
  }
  EXPECT_EQ(daemon_->waiting(), 0U);
}

TEST_P(Wait, NotWithinTheTime) {
  open_manual();
  const gradlane_request request = start();
  EXPECT_EQ(wait(request, 0), GRADLANE_PENDING);
  EXPECT_EQ(wait(request, 30), GRADLANE_PENDING);
  complete(request);
  EXPECT_EQ(wait(request), GRADLANE_OK);
}

TEST_P(Wait, FailsWithTheTextOfTheFirstLane) {
  open_manual();
  const gradlane_request request = start();
  complete(request, GRADLANE_FAILED, "rank 3 has been silent for too long");
  EXPECT_EQ(wait(request), GRADLANE_FAILED);
  EXPECT_STREQ(gradlane_error(gl_.get()), "rank 3 has been silent for too long");
  const gradlane_request next = start();
  for (unsigned i = 0; i < GetParam().lanes; ++i) {
    daemon_->complete(i, cookie_of(next), GRADLANE_FAILED, "lane " + std::to_string(i));
    EXPECT_EQ(gradlane_test(gl_.get(), next), i + 1 < GetParam().lanes ? GRADLANE_PENDING : GRADLANE_FAILED);
  }
  EXPECT_STREQ(gradlane_error(gl_.get()), "lane 0");
}

// A submission tells the daemon which ends of generations the caller knew of. The caller knows of an end as soon as a
// wait has reported it, not when the completion arrives.
TEST_P(Wait, EndsAreSeenWhenTheCallerIsTold) {
  const uint32_t last = GetParam().lanes - 1;
  open_manual();
  const auto seen_by = [&](gradlane_request request, unsigned lane) {
    const size_t count = static_cast<size_t>(cookie_of(request));
    EXPECT_TRUE(daemon_->await_seen(lane, count));
    return daemon_->seen(lane)[count - 1].ends_seen;
  };
  for (const uint32_t first : {0U, 0x7fffffffU, 0xffffffffU}) {
    for (unsigned i = 0; i <= last; ++i) daemon_->set_ends(i, first);
    const gradlane_request before = start(3);
    complete(before, GRADLANE_FAILED, "rank 1 has left");
    EXPECT_EQ(wait(before), GRADLANE_FAILED);

    const gradlane_request good = start(0);
    const gradlane_request bad = start(1);
    complete(good);
    for (unsigned i = 0; i <= last; ++i) daemon_->set_ends(i, first + 1);
    complete(bad, GRADLANE_FAILED, "rank 1 has left");
    EXPECT_EQ(wait(good), GRADLANE_OK);  // this wait also reads the completion of `bad`
    const gradlane_request unaware = start(2);
    EXPECT_EQ(seen_by(unaware, last), first);
    EXPECT_EQ(seen_by(unaware, 0), first);
    EXPECT_EQ(wait(bad), GRADLANE_FAILED);
    const gradlane_request aware = start(3);
    EXPECT_EQ(seen_by(aware, last), first + 1);
    EXPECT_EQ(seen_by(aware, 0), first + 1) << "also of a lane that had completed it before";
    complete(unaware, GRADLANE_FAILED, "rank 1 has left");
    complete(aware);
    EXPECT_EQ(wait(unaware), GRADLANE_FAILED);
    EXPECT_EQ(wait(aware), GRADLANE_OK);
  }
}

TEST_P(Wait, TextWithoutEnd) {
  open_manual();
  const gradlane_request request = start();
  for (unsigned i = 0; i < GetParam().lanes; ++i) {
    gl_completion completion{};
    completion.cookie = cookie_of(request);
    completion.code = GRADLANE_FAILED;
    completion.cause = GRADLANE_CAUSE_TIMEOUT;
    memset(completion.text, 'x', GL_TEXT);
    daemon_->put_completion(i, completion);
  }
  EXPECT_EQ(gradlane_get_cause(gl_.get()), GRADLANE_CAUSE_NONE);
  EXPECT_EQ(wait(request), GRADLANE_FAILED);
  EXPECT_EQ(gradlane_get_cause(gl_.get()), GRADLANE_CAUSE_TIMEOUT);
  EXPECT_EQ(std::string(gradlane_error(gl_.get())), std::string(GL_TEXT - 1, 'x'));
}

TEST_P(Wait, FailureClearsTheWholeResidual) {
  open_manual();
  float* const residual = allocate(gl_, 100);
  gradlane_how how = GRADLANE_HOW_INIT;
  how.residual = residual;
  how.whole = 4096;  // so that the sum is not too small for a codec
  std::fill_n(residual, 100, 1.0F);
  const gradlane_request good = start(0, &how);
  complete(good);
  EXPECT_EQ(wait(good), GRADLANE_OK);
  EXPECT_EQ(std::count(residual, residual + 100, 1.0F), 100);
  const gradlane_request bad = start(0, &how);
  complete(bad, GRADLANE_FAILED, "rank 1 restarted");
  EXPECT_EQ(wait(bad), GRADLANE_FAILED);
  EXPECT_EQ(std::count(residual, residual + 100, 0.0F), 100);
}

TEST_P(Wait, Cancel) {
  open_manual();
  const gradlane_request request = start();
  ASSERT_EQ(gradlane_cancel(gl_.get(), request), GRADLANE_OK);
  for (unsigned i = 0; i < GetParam().lanes; ++i) {
    ASSERT_TRUE(daemon_->await_seen(i, 2));
    EXPECT_EQ(daemon_->seen(i)[1].kind, GL_CANCEL);
    EXPECT_EQ(daemon_->seen(i)[1].cookie, cookie_of(request));
  }
  EXPECT_EQ(gradlane_test(gl_.get(), request), GRADLANE_PENDING);
  complete(request, GRADLANE_FAILED, "cancelled on rank 0");
  EXPECT_EQ(wait(request), GRADLANE_FAILED);
  EXPECT_EQ(gradlane_cancel(gl_.get(), request), GRADLANE_BAD_ARGUMENT);
}

TEST_P(Wait, CancelOfWhatIsOverDoesNothing) {
  open_manual();
  const gradlane_request request = start();
  complete(request);
  const gradlane_request other = start(1);
  complete(other);
  EXPECT_EQ(wait(other), GRADLANE_OK);  // this wait also reads the completion of the first request
  EXPECT_EQ(gradlane_cancel(gl_.get(), request), GRADLANE_OK);
  EXPECT_EQ(wait(request), GRADLANE_OK);
  const gradlane_request last = start();
  ASSERT_TRUE(daemon_->await_seen(0, 3));
  for (const gl_submission& it : daemon_->seen(0)) EXPECT_EQ(it.kind, GL_ALL_REDUCE);
  complete(last);
  EXPECT_EQ(wait(last), GRADLANE_OK);
}

TEST_P(Wait, NumbersAreNotReusedAtOnce) {
  open();
  const gradlane_request first = start();
  EXPECT_EQ(wait(first), GRADLANE_OK);
  const gradlane_request second = start();
  EXPECT_NE(first, second);
  EXPECT_EQ(wait(first), GRADLANE_BAD_ARGUMENT);
  EXPECT_EQ(wait(second), GRADLANE_OK);
  for (const gradlane_request wrong : {gradlane_request{0}, ~gradlane_request{0}, second + 1}) {
    EXPECT_EQ(wait(wrong), GRADLANE_BAD_ARGUMENT);
    EXPECT_EQ(gradlane_test(gl_.get(), wrong), GRADLANE_BAD_ARGUMENT);
  }
}

// Waits go on after a signal handler has run.
TEST_P(Wait, Signals) {
  open_manual();
  struct sigaction action {};
  static std::atomic<int> handled;
  handled = 0;
  action.sa_handler = [](int) { ++handled; };
  ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);  // without SA_RESTART
  const gradlane_request request = start();
  const pthread_t waiter = pthread_self();
  std::thread later([&] {
    for (int i = 0; i < 20; ++i) {
      await_waiting();
      pthread_kill(waiter, SIGUSR1);
      while (handled <= i) std::this_thread::yield();
    }
    complete(request);
  });
  EXPECT_EQ(wait(request), GRADLANE_OK);
  later.join();
}

}  // namespace
}  // namespace gradlane::test::wait_test
