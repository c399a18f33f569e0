// tasks_test.cc - tests of tasks: operations of several threads, which run one after the other
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/client/client_fixture.h"

namespace gradlane::test::tasks_test {
namespace {

constexpr size_t kLarge = 2 << 20;  // floats; too many for gradlane_add() to wait until the task has ended

class Tasks : public testing::Test {
 protected:
  void open(FakeDaemon::Settings settings, bool shared = true) {
    gl_.reset();
    daemon_ = std::make_unique<FakeDaemon>(std::move(settings));
    gl_ = open_context(*daemon_);
    data_ = allocate(gl_, kLarge);
    for (int i = 0; shared && i < 2; ++i) ASSERT_EQ(gradlane_share(gl_.get()), GRADLANE_OK);
  }
  void open_manual() {
    open({.on_submission = [](unsigned, const gl_submission&) { return false; }});
  }
  void SetUp() override { open({}); }

  // Adds a task in the calling thread. If that thread calls next(), the task runs to its end.
  gradlane_code add_here(size_t count, uint64_t user = 0, unsigned flags = 0) {
    gradlane_task task = GRADLANE_TASK_INIT;
    task.collective = GRADLANE_ALL_REDUCE;
    task.type = GRADLANE_FLOAT32;
    task.data = data_;
    task.count = count;
    task.user = user;
    task.flags = flags;
    task.how = &how_;
    task.what = what_;
    return gradlane_add(gl_.get(), &task, &added_);
  }
  // Adds a task in another thread.
  gradlane_code add(size_t count, uint64_t user = 0, unsigned flags = 0) {
    gradlane_code code = GRADLANE_OK;
    std::thread([&] { code = add_here(count, user, flags); }).join();
    return code;
  }
  gradlane_code next() { return gradlane_next(gl_.get(), &outcome_); }
  void complete(size_t number, int32_t code = GRADLANE_OK, const std::string& text = "") {
    ASSERT_TRUE(daemon_->await_seen(0, number + 1));
    daemon_->complete(0, daemon_->seen(0)[number].cookie, code, text);
  }
  // Returns the tag of the submission with this number.
  uint64_t tag(size_t number) {
    EXPECT_TRUE(daemon_->await_seen(0, number + 1));
    return daemon_->seen(0)[number].tag;
  }

  std::unique_ptr<FakeDaemon> daemon_;
  Context gl_;
  float* data_ = nullptr;
  gradlane_how how_ = GRADLANE_HOW_INIT;
  const char* what_ = nullptr;
  gradlane_outcome added_ = GRADLANE_OUTCOME_INIT;
  gradlane_outcome outcome_ = GRADLANE_OUTCOME_INIT;
};

TEST_F(Tasks, LargeOnesAreToldInTheOrderOfTheCalls) {
  for (uint64_t user = 1; user <= 3; ++user) EXPECT_EQ(add(kLarge, user), GRADLANE_PENDING);
  EXPECT_EQ(added_.task, 3U);
  for (uint64_t user = 1; user <= 3; ++user) {
    ASSERT_EQ(next(), GRADLANE_OK);
    EXPECT_EQ(outcome_.user, user);
    EXPECT_EQ(outcome_.task, user);
    EXPECT_EQ(outcome_.code, GRADLANE_OK);
    EXPECT_EQ(daemon_->seen(0).size(), user) << "the next one has begun before the caller is through with this one";
  }
  gradlane_disconnect(gl_.get());
  EXPECT_EQ(next(), GRADLANE_DAEMON_GONE);
}

// Small tasks usually end within gradlane_add(). If the fake daemon is slow, gradlane_next() reports the task, like a
// large one.
TEST_F(Tasks, SmallOnesEndInTheCall) {
  for (uint64_t user = 1; user <= 20; ++user) {
    const gradlane_code code = add(100, user);
    if (code == GRADLANE_PENDING) {
      ASSERT_EQ(next(), GRADLANE_OK);
      EXPECT_EQ(outcome_.user, user);
      return;
    }
    ASSERT_EQ(code, GRADLANE_OK);
    EXPECT_EQ(added_.user, user);
    EXPECT_EQ(added_.code, GRADLANE_OK);
  }
  gradlane_disconnect(gl_.get());
  EXPECT_EQ(next(), GRADLANE_DAEMON_GONE) << "nothing is told twice";
}

TEST_F(Tasks, OneThatAsksWaitsForTheAnswer) {
  EXPECT_EQ(add(kLarge, 7, GRADLANE_ASKS), GRADLANE_PENDING);
  ASSERT_EQ(next(), GRADLANE_OK);
  EXPECT_EQ(outcome_.asks, 1);
  EXPECT_EQ(outcome_.code, GRADLANE_PENDING);
  EXPECT_EQ(outcome_.user, 7U);
  EXPECT_TRUE(daemon_->seen(0).empty());
  EXPECT_EQ(next(), GRADLANE_BAD_ARGUMENT);
  ASSERT_EQ(gradlane_answer(gl_.get(), GRADLANE_OK, "fixed:12"), GRADLANE_OK);
  EXPECT_EQ(gradlane_answer(gl_.get(), GRADLANE_OK, nullptr), GRADLANE_BAD_ARGUMENT);
  ASSERT_EQ(next(), GRADLANE_OK);
  EXPECT_EQ(outcome_.code, GRADLANE_OK);
  EXPECT_NE(daemon_->seen(0).at(0).flags & GL_FLAG_CODEC, 0);
  // A task that the caller gives up has had its turn. The tasks after it run.
  EXPECT_EQ(add(kLarge, 8, GRADLANE_ASKS), GRADLANE_PENDING);
  EXPECT_EQ(add(kLarge, 9), GRADLANE_PENDING);
  ASSERT_EQ(next(), GRADLANE_OK);
  ASSERT_EQ(gradlane_answer(gl_.get(), GRADLANE_BAD_ARGUMENT, nullptr), GRADLANE_OK);
  ASSERT_EQ(next(), GRADLANE_OK);
  EXPECT_EQ(outcome_.code, GRADLANE_BAD_ARGUMENT);
  ASSERT_EQ(next(), GRADLANE_OK);
  EXPECT_EQ(outcome_.user, 9U);
  EXPECT_EQ(outcome_.code, GRADLANE_OK);
}

TEST_F(Tasks, WhatACallbackStartsRunsInFrontOfThoseThatWait) {
  EXPECT_EQ(add(kLarge, 1), GRADLANE_PENDING);
  EXPECT_EQ(add(kLarge, 2), GRADLANE_PENDING);
  ASSERT_EQ(next(), GRADLANE_OK);
  ASSERT_EQ(outcome_.user, 1U);
  EXPECT_EQ(add_here(300, 3), GRADLANE_OK);
  EXPECT_EQ(added_.user, 3U);
  EXPECT_EQ(daemon_->seen(0).at(1).count, 300U);
  ASSERT_EQ(next(), GRADLANE_OK);
  EXPECT_EQ(outcome_.user, 2U);
}

// If a task fails on this rank only, it still counts in the order.
TEST_F(Tasks, WhatACallbackGivesUpIsCounted) {
  EXPECT_EQ(add(kLarge, 1), GRADLANE_PENDING);
  ASSERT_EQ(next(), GRADLANE_OK);
  EXPECT_EQ(add_here(300, 2, GRADLANE_FAILS), GRADLANE_BAD_ARGUMENT);
  EXPECT_EQ(daemon_->seen(0).size(), 1U);
  EXPECT_EQ(add_here(300, 3), GRADLANE_OK);
  const uint64_t third = tag(1);
  open({});
  for (uint64_t user = 1; user <= 3; ++user) EXPECT_EQ(add(user == 1 ? kLarge : 300, user), GRADLANE_PENDING);
  for (uint64_t user = 1; user <= 3; ++user) ASSERT_EQ(next(), GRADLANE_OK);
  EXPECT_EQ(tag(2), third) << "where none was given up";
}

TEST_F(Tasks, AFailureFailsThoseThatWait) {
  open_manual();
  for (uint64_t user = 1; user <= 3; ++user) EXPECT_EQ(add(kLarge, user), GRADLANE_PENDING);
  std::thread daemon([&] { complete(0, GRADLANE_FAILED, "a rank has left"); });
  ASSERT_EQ(next(), GRADLANE_OK);
  daemon.join();
  EXPECT_EQ(outcome_.code, GRADLANE_FAILED);
  EXPECT_STREQ(static_cast<const char*>(outcome_.text), "a rank has left");
  EXPECT_EQ(add(kLarge, 4), GRADLANE_PENDING) << "who knows of the failure starts afresh";
  for (uint64_t user = 2; user <= 3; ++user) {
    ASSERT_EQ(next(), GRADLANE_OK);
    EXPECT_EQ(outcome_.user, user);
    EXPECT_EQ(outcome_.code, GRADLANE_FAILED);
    EXPECT_STREQ(static_cast<const char*>(outcome_.text), "a rank has left (an earlier operation failed)");
  }
  EXPECT_EQ(daemon_->seen(0).size(), 1U);
  std::thread again([&] { complete(1); });
  ASSERT_EQ(next(), GRADLANE_OK);
  again.join();
  EXPECT_EQ(outcome_.user, 4U);
  EXPECT_EQ(outcome_.code, GRADLANE_OK);
}

// A wrong argument fails its own task only.
TEST_F(Tasks, AWrongArgumentFailsOneTask) {
  how_.reduction = 7;
  EXPECT_EQ(add(kLarge, 1), GRADLANE_PENDING);
  how_.reduction = GRADLANE_SUM;
  EXPECT_EQ(add(kLarge, 2), GRADLANE_PENDING);
  ASSERT_EQ(next(), GRADLANE_OK);
  EXPECT_EQ(outcome_.code, GRADLANE_BAD_ARGUMENT);
  EXPECT_TRUE(contains(static_cast<const char*>(outcome_.text), "no reduction 7"));
  ASSERT_EQ(next(), GRADLANE_OK);
  EXPECT_EQ(outcome_.code, GRADLANE_OK);
}

// The tags of two ranks must be equal if and only if both ranks have added the same tasks, and the same of these tasks
// have failed.
TEST_F(Tasks, TagsAreOfWhatRanksMustAgreeOn) {
  std::vector<uint64_t> tags;
  const auto run = [&](size_t count) {
    EXPECT_EQ(add(count, 0), GRADLANE_PENDING);
    EXPECT_EQ(next(), GRADLANE_OK);
    return tag(daemon_->seen(0).size() - 1);
  };
  const uint64_t first = run(kLarge);
  const uint64_t second = run(kLarge);
  EXPECT_NE(first, second);
  open({});
  EXPECT_EQ(run(kLarge), first);
  open({});
  EXPECT_NE(run(kLarge - 1), first);
  open({});
  how_.average = 1;
  EXPECT_NE(run(kLarge), first);
  how_.average = 0;
  open({});
  what_ = " of torch.int8";
  EXPECT_NE(run(kLarge), first);
  what_ = nullptr;
  open_manual();
  EXPECT_EQ(add(kLarge), GRADLANE_PENDING);
  std::thread daemon([&] { complete(0, GRADLANE_FAILED, "it was cut"); });
  EXPECT_EQ(next(), GRADLANE_OK);
  daemon.join();
  EXPECT_EQ(add(kLarge), GRADLANE_PENDING);
  std::thread again([&] { complete(1); });
  EXPECT_EQ(next(), GRADLANE_OK);
  again.join();
  EXPECT_NE(tag(1), second) << "after a failure";
}

TEST_F(Tasks, DisconnectingFailsAll) {
  open_manual();
  EXPECT_EQ(add(kLarge, 1), GRADLANE_PENDING);
  EXPECT_EQ(add(kLarge, 2), GRADLANE_PENDING);
  std::vector<uint64_t> told;
  std::thread engine([&] {
    while (next() == GRADLANE_OK) {
      EXPECT_EQ(outcome_.code, GRADLANE_DAEMON_GONE);
      told.push_back(outcome_.user);
    }
  });
  ASSERT_TRUE(daemon_->await_seen(0, 1));
  gradlane_disconnect(gl_.get());
  engine.join();
  EXPECT_EQ(told, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(add(1), GRADLANE_DAEMON_GONE);
  EXPECT_TRUE(contains(static_cast<const char*>(added_.text), "disconnected"));
}

TEST_F(Tasks, FlagsThatDoNotFit) {
  EXPECT_EQ(add(kLarge, 1, 64), GRADLANE_BAD_ARGUMENT);
  EXPECT_EQ(add(kLarge, 1, GRADLANE_FAILS), GRADLANE_BAD_ARGUMENT);
  EXPECT_EQ(add(kLarge, 1), GRADLANE_PENDING);
  ASSERT_EQ(next(), GRADLANE_OK);
  EXPECT_EQ(add_here(300, 2, GRADLANE_ASKS), GRADLANE_BAD_ARGUMENT);
  EXPECT_TRUE(contains(static_cast<const char*>(added_.text), "only GRADLANE_HASHES and GRADLANE_FAILS are allowed"));
}

TEST_F(Tasks, NextIsForOneThread) {
  open_manual();
  EXPECT_EQ(add(kLarge, 1), GRADLANE_PENDING);
  std::thread engine([&] { EXPECT_EQ(next(), GRADLANE_OK); });
  ASSERT_TRUE(daemon_->await_seen(0, 1));
  gradlane_outcome other = GRADLANE_OUTCOME_INIT;
  EXPECT_EQ(gradlane_next(gl_.get(), &other), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl_.get(), "another thread is in this call");
  complete(0);
  engine.join();
}

TEST_F(Tasks, OthersAreRefused) {
  gradlane_request request = 0;
  EXPECT_EQ(gradlane_all_reduce(gl_.get(), data_, 1, GRADLANE_FLOAT32, nullptr, &request), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl_.get(), "threads share the context");
  EXPECT_EQ(gradlane_wait(gl_.get(), 1, 0), GRADLANE_BAD_ARGUMENT);
  EXPECT_EQ(gradlane_fd(gl_.get()), -1);
  EXPECT_EQ(add(kLarge), GRADLANE_PENDING);
}

TEST_F(Tasks, ManyThreadsAdd) {
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kEach = 50;
  std::atomic<uint64_t> ended{0};
  std::thread engine([&] {
    gradlane_outcome outcome = GRADLANE_OUTCOME_INIT;
    while (gradlane_next(gl_.get(), &outcome) == GRADLANE_OK) {
      EXPECT_EQ(outcome.code, GRADLANE_OK) << static_cast<const char*>(outcome.text);
      ++ended;
    }
  });
  std::vector<float*> data;
  for (uint64_t i = 0; i < kThreads; ++i) data.push_back(allocate(gl_, 5000));
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      gradlane_outcome outcome = GRADLANE_OUTCOME_INIT;
      for (uint64_t k = 0; k < kEach; ++k) {
        gradlane_task task = GRADLANE_TASK_INIT;
        task.collective = GRADLANE_ALL_REDUCE;
        task.data = data[i] + k * 100;
        task.count = 100;
        const gradlane_code code = gradlane_add(gl_.get(), &task, &outcome);
        EXPECT_TRUE(code == GRADLANE_OK || code == GRADLANE_PENDING) << static_cast<const char*>(outcome.text);
        ended += code == GRADLANE_OK ? 1 : 0;
        void* more = nullptr;
        EXPECT_EQ(gradlane_alloc(gl_.get(), 100, &more), GRADLANE_OK);
        EXPECT_EQ(gradlane_free(gl_.get(), nullptr), GRADLANE_OK);
        EXPECT_EQ(gradlane_free(gl_.get(), &outcome), GRADLANE_BAD_ARGUMENT);
        EXPECT_TRUE(contains(gradlane_error(gl_.get()), "not the start of a buffer"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  while (ended < kThreads * kEach) std::this_thread::yield();
  gradlane_disconnect(gl_.get());
  engine.join();
}

// ---- Blocks of ranks, each in memory of its own

class Blocks : public Tasks {
 protected:
  static constexpr uint32_t kWorld = 3;
  static constexpr uint32_t kRank = 1;
  static constexpr size_t kCount = 1000;
  // Opens a daemon that adds one to all elements of a submission, in the blocks of all ranks.
  void SetUp() override {
    open({.rank = kRank,
          .world = kWorld,
          .flags = GL_WELCOME_LOCAL_REDUCE,
          .on_submission =
              [this](unsigned, const gl_submission& it) {
                EXPECT_EQ(it.pitch, 0U) << "each part is a tensor of its own";
                auto* const floats = reinterpret_cast<float*>(memory_.load() + it.offset);
                for (size_t i = 0; adds_ && i < it.count * kWorld; ++i) floats[i] += 1;
                return true;
              }},
         false);
    how_.part_bytes = 4096;
    // The library's staging blocks lie in one segment.
    ASSERT_EQ(gradlane_all_reduce(gl_.get(), own_.data(), 1, GRADLANE_FLOAT32, &how_, nullptr), GRADLANE_OK);
    memory_ = daemon_->bytes(daemon_->seen(0).at(0).segment);
    adds_ = true;
    for (uint32_t rank = 0; rank < kWorld; ++rank) {
      rows_.emplace_back(kCount + 1, static_cast<float>(rank * 100));
    }
    for (auto& row : rows_) pointers_.push_back(row.data());
    how_.blocks = pointers_.data();
  }

  std::atomic<uint8_t*> memory_{nullptr};
  std::atomic<bool> adds_{false};
  std::vector<std::vector<float>> rows_;
  std::vector<void*> pointers_;
  std::vector<float> own_ = std::vector<float>(kCount + 1, 50);
};

TEST_F(Blocks, ReduceScatterReadsThemAll) {
  ASSERT_EQ(gradlane_reduce_scatter(gl_.get(), own_.data(), kCount, GRADLANE_FLOAT32, &how_, nullptr), GRADLANE_OK)
      << gradlane_error(gl_.get());
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(own_[i], 101) << i;
  EXPECT_EQ(own_[kCount], 50) << "behind the data";
  for (uint32_t rank = 0; rank < kWorld; ++rank) ASSERT_EQ(rows_[rank][7], static_cast<float>(rank * 100));
  EXPECT_GT(daemon_->seen(0).size(), 2U) << "in parts";
}

TEST_F(Blocks, AllGatherWritesThemAll) {
  std::vector<float> before(kCount, 9);
  ASSERT_EQ(gradlane_all_gather(gl_.get(), own_.data(), kCount, GRADLANE_FLOAT32, &how_, nullptr), GRADLANE_OK)
      << gradlane_error(gl_.get());
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(own_[i], 50) << i;
    ASSERT_EQ(rows_[kRank][i], 51) << i;
  }
  EXPECT_EQ(rows_[kRank][kCount], 100) << "behind the block";
}

TEST_F(Blocks, OfATaskAreCopiedPointers) {
  ASSERT_EQ(gradlane_share(gl_.get()), GRADLANE_OK);
  gradlane_task task = GRADLANE_TASK_INIT;
  task.collective = GRADLANE_REDUCE_SCATTER;
  task.data = own_.data();
  task.count = kCount;
  task.how = &how_;
  task.flags = GRADLANE_ASKS;
  ASSERT_EQ(gradlane_add(gl_.get(), &task, &added_), GRADLANE_PENDING);
  pointers_.assign(kWorld, nullptr);
  ASSERT_EQ(next(), GRADLANE_OK);
  ASSERT_EQ(gradlane_answer(gl_.get(), GRADLANE_OK, nullptr), GRADLANE_OK);
  ASSERT_EQ(next(), GRADLANE_OK);
  ASSERT_EQ(outcome_.code, GRADLANE_OK) << static_cast<const char*>(outcome_.text);
  EXPECT_EQ(own_[0], 101);
}

TEST_F(Blocks, WhatIsRefused) {
  const auto expect_bad = [&](gradlane_code code, const char* words) {
    EXPECT_EQ(code, GRADLANE_BAD_ARGUMENT);
    EXPECT_SAYS(gl_.get(), words);
  };
  expect_bad(gradlane_all_reduce(gl_.get(), own_.data(), 8, GRADLANE_FLOAT32, &how_, nullptr), "blocks are only for");
  pointers_[2] = nullptr;
  expect_bad(gradlane_all_gather(gl_.get(), own_.data(), 8, GRADLANE_FLOAT32, &how_, nullptr), "rank 2 is NULL");
  how_.part_bytes = 0;
  expect_bad(gradlane_all_gather(gl_.get(), own_.data(), 8, GRADLANE_FLOAT32, &how_, nullptr),
             "blocks need part_bytes");
}

TEST(NotShared, TasksAreRefused) {
  FakeDaemon daemon({});
  const Context gl = open_context(daemon);
  gradlane_outcome outcome = GRADLANE_OUTCOME_INIT;
  gradlane_task task = GRADLANE_TASK_INIT;
  EXPECT_EQ(gradlane_add(gl.get(), &task, &outcome), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl.get(), "gradlane_share() first");
  EXPECT_EQ(gradlane_next(gl.get(), &outcome), GRADLANE_BAD_ARGUMENT);
  EXPECT_EQ(gradlane_answer(gl.get(), GRADLANE_OK, nullptr), GRADLANE_BAD_ARGUMENT);
  ASSERT_EQ(gradlane_share(gl.get()), GRADLANE_OK);
  EXPECT_EQ(gradlane_add(gl.get(), &task, &outcome), GRADLANE_BAD_ARGUMENT);
  EXPECT_TRUE(contains(static_cast<const char*>(outcome.text), "no collective 0"));
  task.collective = GRADLANE_BARRIER;
  task.type = 7;
  EXPECT_EQ(gradlane_add(gl.get(), &task, &outcome), GRADLANE_BAD_ARGUMENT);
  EXPECT_EQ(gradlane_add(gl.get(), nullptr, &outcome), GRADLANE_BAD_ARGUMENT);
  EXPECT_EQ(gradlane_add(gl.get(), &task, nullptr), GRADLANE_BAD_ARGUMENT);
}

}  // namespace
}  // namespace gradlane::test::tasks_test
