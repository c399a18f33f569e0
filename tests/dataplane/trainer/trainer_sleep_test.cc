// trainer_sleep_test.cc - a trainer and a lane that sleep, each on its own thread: no wake-up is lost
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/dataplane/trainer/trainer_fixture.h"

namespace gradlane::test::trainer_sleep_test {
namespace {

constexpr int kLost = 20'000;  // ms; nobody sleeps that long unless a wake-up was lost

bool wait_for_ring(int bell) {
  pollfd event{.fd = bell, .events = POLLIN, .revents = 0};
  const bool rung = poll(&event, 1, kLost) == 1;
  gl_drain_bell(bell);
  return rung;
}

struct Bell {
  Bell() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0); }
  ~Bell() {
    close(ends[0]);
    close(ends[1]);
  }
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  int ends[2] = {-1, -1};
};

void run_lane(TrainerWorld& world, int bell, const std::atomic<bool>& stop, std::atomic<int>& sleeps) {
  TrainerOps& ops = world.ops(0, 0);
  while (!stop.load()) {
    world.step();
    if (!world.idle()) continue;
    if (ops.fall_asleep() && !stop.load()) {
      ++sleeps;
      if (!wait_for_ring(bell)) {
        ADD_FAILURE() << "the lane has slept through a submission";
        break;
      }
    }
    ops.wake_up();
  }
}

bool await(Trainer& trainer, uint64_t cookie) {
  for (;;) {
    if (trainer.over(cookie)) return true;
    __atomic_store_n(&trainer.control().waiting, 1, __ATOMIC_SEQ_CST);
    const bool awake = trainer.over(cookie).has_value() || wait_for_ring(trainer.bell());
    __atomic_store_n(&trainer.control().waiting, 0, __ATOMIC_SEQ_CST);
    if (!awake) return false;
  }
}

TEST(Sleep, NoWakeUpIsLost) {
  TrainerWorld world({.nodes = 1});
  Trainer trainer(world, 0);
  trainer.attach();
  trainer.add_segment(0, 4096);
  Bell bell;
  std::atomic<bool> stop{false};
  std::atomic<int> sleeps{0};
  std::thread lane([&] { run_lane(world, bell.ends[1], stop, sleeps); });
  for (int i = 0; i < 10'000; ++i) {
    // The trainer submits one to three operations. The lane may take some while it is about to sleep.
    uint64_t cookie = 0;
    for (int n = 0; n <= i % 3; ++n) {
      cookie = trainer.submit(submission_of(OpKind::kAllReduce, ElementType::kInt32, 4));
      if (__atomic_load_n(&trainer.lane(0).asleep, __ATOMIC_SEQ_CST) != 0) gl_ring(bell.ends[0]);
    }
    if (!await(trainer, cookie)) {
      ADD_FAILURE() << "the trainer has slept through completion " << i;
      break;
    }
  }
  stop.store(true);
  gl_ring(bell.ends[0]);
  lane.join();
  EXPECT_GT(sleeps.load(), 0);
}

}  // namespace
}  // namespace gradlane::test::trainer_sleep_test
