// queue_test.cc - tests of more operations than the daemon takes at a time: they wait in the library, in order
#include <poll.h>

#include <algorithm>

#include "tests/client/wait_fixture.h"

namespace gradlane::test::queue_test {
namespace {

constexpr size_t kMany = 200;

class Queue : public Wait {
 protected:
  void SetUp() override {
    open_manual();
    floats_ = allocate(gl_, kMany + 1);
  }
  gradlane_request start(size_t place) {
    gradlane_request request = 0;
    EXPECT_EQ(gradlane_all_reduce(gl_.get(), floats_ + place, 1, GRADLANE_FLOAT32, nullptr, &request), GRADLANE_OK)
        << gradlane_error(gl_.get());
    return request;
  }
  void start_all() {
    for (size_t i = 0; i < kMany; ++i) requests_.push_back(start(i));
  }
  // Completes the operations with cookies `first` to `last` on all lanes.
  void complete_cookies(uint64_t first, uint64_t last, int32_t code = GRADLANE_OK, const std::string& text = "") {
    for (uint64_t cookie = first; cookie <= last; ++cookie) {
      for (unsigned i = 0; i < GetParam().lanes; ++i) daemon_->complete(i, cookie, code, text);
    }
  }
  // Waits until each lane has received `count` submissions. Returns false if one receives more, or if the last request
  // ends.
  bool seen_by_all(size_t count) {
    for (unsigned i = 0; i < GetParam().lanes; ++i) {
      // The submission rings may not have had space for all submissions at once. Each wait() submits more.
      while (daemon_->seen(i).size() < count) {
        if (wait(requests_.back(), 1) != GRADLANE_PENDING) return false;
      }
      if (daemon_->seen(i).size() != count) return false;
    }
    return true;
  }
  gradlane_code test(gradlane_request request) { return gradlane_test(gl_.get(), request); }

  float* floats_ = nullptr;
  std::vector<gradlane_request> requests_;
};

INSTANTIATE_TEST_SUITE_P(Modes, Queue, testing::ValuesIn(kModes), mode_name);

TEST_P(Queue, InTheOrderOfTheCalls) {
  start_all();
  ASSERT_TRUE(seen_by_all(GL_SLOTS));
  // Any call into the library submits operations that wait in its queue.
  complete_cookies(1, 1);
  EXPECT_EQ(test(requests_.back()), GRADLANE_PENDING);
  ASSERT_TRUE(seen_by_all(GL_SLOTS + 1));
  complete_cookies(2, GL_SLOTS);
  EXPECT_EQ(wait(requests_[3]), GRADLANE_OK);
  ASSERT_TRUE(seen_by_all(2 * GL_SLOTS));
  complete_cookies(GL_SLOTS + 1, 2 * GL_SLOTS);
  const gradlane_request last = start(3);
  requests_.push_back(last);
  ASSERT_TRUE(seen_by_all(3 * GL_SLOTS));
  complete_cookies(2 * GL_SLOTS + 1, 3 * GL_SLOTS);
  ASSERT_TRUE(seen_by_all(kMany + 1));
  for (unsigned i = 0; i < GetParam().lanes; ++i) {
    const auto seen = daemon_->seen(i);
    for (size_t n = 0; n < seen.size(); ++n) ASSERT_EQ(seen[n].tag, n);
  }
  complete_cookies(3 * GL_SLOTS + 1, kMany + 1);
  EXPECT_EQ(wait(last), GRADLANE_OK);
  requests_.pop_back();
  requests_.erase(requests_.begin() + 3);
  std::reverse(requests_.begin(), requests_.end());
  for (const gradlane_request request : requests_) ASSERT_EQ(wait(request), GRADLANE_OK);
}

// A wait for the last of many operations completes all of them.
TEST_P(Queue, AWaitMovesOnWhatIsInFront) {
  open();
  floats_ = allocate(gl_, kMany + 1);
  start_all();
  EXPECT_EQ(wait(requests_.back()), GRADLANE_OK);
  EXPECT_EQ(gradlane_barrier(gl_.get(), nullptr, nullptr), GRADLANE_OK);
  requests_.pop_back();
  for (const gradlane_request request : requests_) ASSERT_EQ(wait(request), GRADLANE_OK);
}

TEST_P(Queue, AnEventLoopSeesThemAllThrough) {
  open();
  floats_ = allocate(gl_, kMany + 1);
  const int fd = gradlane_fd(gl_.get());
  start_all();
  while (!requests_.empty()) {
    pollfd wanted{fd, POLLIN, 0};
    ASSERT_EQ(poll(&wanted, 1, kLong), 1) << requests_.size() << " are left";
    std::erase_if(requests_, [&](gradlane_request request) { return test(request) == GRADLANE_OK; });
  }
  pollfd wanted{fd, POLLIN, 0};
  EXPECT_EQ(poll(&wanted, 1, 0), 0);
}

TEST_P(Queue, DataIsInUse) {
  start_all();
  gradlane_request other = 0;
  EXPECT_EQ(gradlane_all_reduce(gl_.get(), floats_ + kMany - 1, 1, GRADLANE_FLOAT32, nullptr, &other),
            GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl_.get(), "in use by request " + std::to_string(requests_.back()));
  EXPECT_EQ(gradlane_free(gl_.get(), floats_), GRADLANE_BAD_ARGUMENT);
}

// A cancelled operation keeps its place in the order, which is the same on all ranks, and fails there.
TEST_P(Queue, CancelOfWhatWaits) {
  start_all();
  ASSERT_EQ(gradlane_cancel(gl_.get(), requests_[GL_SLOTS]), GRADLANE_OK);
  ASSERT_EQ(gradlane_cancel(gl_.get(), requests_[GL_SLOTS]), GRADLANE_OK);
  complete_cookies(1, 2);
  EXPECT_EQ(wait(requests_[0]), GRADLANE_OK);
  ASSERT_TRUE(seen_by_all(GL_SLOTS + 2));
  EXPECT_EQ(daemon_->seen(0)[GL_SLOTS].flags, GL_FLAG_EXACT | GL_FLAG_CANCELLED);
  EXPECT_EQ(daemon_->seen(0)[GL_SLOTS + 1].flags, GL_FLAG_EXACT);
  complete_cookies(GL_SLOTS + 1, GL_SLOTS + 1, GRADLANE_FAILED, "cancelled on rank 0");
  EXPECT_EQ(wait(requests_[GL_SLOTS]), GRADLANE_FAILED);
  EXPECT_SAYS(gl_.get(), "cancelled on rank 0");
}

TEST_P(Queue, ResumeFailsWhatWaits) {
  start_all();
  ASSERT_EQ(gradlane_resume(gl_.get(), 5000), GRADLANE_OK);
  for (size_t i = GL_SLOTS; i < kMany; ++i) {
    ASSERT_EQ(test(requests_[i]), GRADLANE_FAILED);
    EXPECT_SAYS(gl_.get(), "called gradlane_resume()");
  }
  const gradlane_request after = start(kMany - 1);
  requests_.push_back(after);
  complete_cookies(1, GL_SLOTS, GRADLANE_FAILED, "a trainer of this rank has started again");
  EXPECT_EQ(wait(requests_[0]), GRADLANE_FAILED);
  ASSERT_TRUE(seen_by_all(GL_SLOTS + 2));
  EXPECT_EQ(daemon_->seen(0)[GL_SLOTS].kind, GL_RESUME);
  EXPECT_EQ(daemon_->seen(0)[GL_SLOTS + 1].tag, 5000U);
  complete_cookies(GL_SLOTS + 1, GL_SLOTS + 1);
  EXPECT_EQ(wait(after), GRADLANE_OK);
}

TEST_P(Queue, TheEndOfTheDaemonIsThatOfWhatWaits) {
  start_all();
  complete_cookies(1, 1);
  daemon_->goodbye("shut down");
  EXPECT_EQ(wait(requests_.back()), GRADLANE_DAEMON_GONE);
  EXPECT_SAYS(gl_.get(), "shut down");
  EXPECT_EQ(wait(requests_[0]), GRADLANE_OK);
  for (size_t i = 1; i + 1 < kMany; ++i) ASSERT_EQ(wait(requests_[i]), GRADLANE_DAEMON_GONE);
}

TEST_P(Queue, DisconnectEndsWhatWaits) {
  start_all();
  gradlane_disconnect(gl_.get());
  for (const gradlane_request request : requests_) ASSERT_EQ(test(request), GRADLANE_DAEMON_GONE);
  EXPECT_SAYS(gl_.get(), "has disconnected");
}

// An operation submitted before the caller knew of the end of a generation must not count as one of the next
// generation.
TEST_P(Queue, WhatWaitsKnowsWhatTheCallerKnew) {
  start_all();
  for (unsigned i = 0; i < GetParam().lanes; ++i) daemon_->set_ends(i, 1);
  complete_cookies(1, 1, GRADLANE_FAILED, "rank 1 has left");
  EXPECT_EQ(wait(requests_[0]), GRADLANE_FAILED);
  const gradlane_request aware = start(0);
  complete_cookies(2, GL_SLOTS);
  EXPECT_EQ(wait(requests_[1]), GRADLANE_OK);
  requests_.push_back(aware);
  ASSERT_TRUE(seen_by_all(2 * GL_SLOTS));
  complete_cookies(GL_SLOTS + 1, 2 * GL_SLOTS);
  ASSERT_TRUE(seen_by_all(3 * GL_SLOTS));
  complete_cookies(2 * GL_SLOTS + 1, 3 * GL_SLOTS);
  ASSERT_TRUE(seen_by_all(kMany + 1));
  for (unsigned i = 0; i < GetParam().lanes; ++i) {
    const auto seen = daemon_->seen(i);
    for (size_t n = 0; n < kMany; ++n) ASSERT_EQ(seen[n].ends_seen, 0U) << n;
    EXPECT_EQ(seen[kMany].ends_seen, 1U);
  }
}

// While a busy lane takes nothing from its ring, nothing is refused and nothing is lost.
TEST_P(Queue, RingsWithoutRoom) {
  const int fd = gradlane_fd(gl_.get());
  daemon_->pause(true);
  start_all();
  for (size_t i = 0; i < GL_SLOTS; ++i) ASSERT_EQ(gradlane_cancel(gl_.get(), requests_[i]), GRADLANE_OK);
  ASSERT_EQ(gradlane_resume(gl_.get(), 1000), GRADLANE_OK);
  const gradlane_request after = start(kMany);
  EXPECT_NE(after, 0U);
  pollfd wanted{fd, POLLIN, 0};
  EXPECT_EQ(poll(&wanted, 1, kLong), 1);  // readable at once, as no bell reports free space
  daemon_->pause(false);
  // The lane receives the operations, the cancels and the resume. It receives the operation after them as soon as there
  // is a free slot.
  while (daemon_->seen(0).size() < 2 * GL_SLOTS + 1) EXPECT_EQ(test(after), GRADLANE_PENDING);
  requests_.push_back(after);
  ASSERT_TRUE(seen_by_all(2 * GL_SLOTS + 1));
  requests_.pop_back();
  const auto seen = daemon_->seen(0);
  for (size_t i = 0; i < GL_SLOTS; ++i) {
    EXPECT_EQ(seen[i].kind, GL_ALL_REDUCE);
    EXPECT_EQ(seen[GL_SLOTS + i].kind, GL_CANCEL);
    EXPECT_EQ(seen[GL_SLOTS + i].cookie, seen[i].cookie);
  }
  EXPECT_EQ(seen.back().kind, GL_RESUME);
  complete_cookies(1, GL_SLOTS, GRADLANE_FAILED, "cancelled");
  for (const gradlane_request request : requests_) ASSERT_EQ(wait(request), GRADLANE_FAILED);
  requests_ = {after};
  ASSERT_TRUE(seen_by_all(2 * GL_SLOTS + 2));
  complete_cookies(GL_SLOTS + 1, GL_SLOTS + 1);
  EXPECT_EQ(wait(after), GRADLANE_OK);
}

// A wait that sleeps also notices free space in a ring, although no bell reports it.
TEST_P(Queue, AWaitSeesRoom) {
  daemon_->pause(true);
  start_all();
  ASSERT_EQ(gradlane_cancel(gl_.get(), requests_[0]), GRADLANE_OK);
  daemon_->pause(false);
  std::thread later([&] {
    for (unsigned i = 0; i < GetParam().lanes; ++i) EXPECT_TRUE(daemon_->await_seen(i, GL_SLOTS + 1));
    complete_cookies(1, 1, GRADLANE_FAILED, "cancelled");
  });
  EXPECT_EQ(wait(requests_[0]), GRADLANE_FAILED);
  later.join();
  EXPECT_EQ(daemon_->seen(0)[GL_SLOTS].kind, GL_CANCEL);
}

}  // namespace
}  // namespace gradlane::test::queue_test
