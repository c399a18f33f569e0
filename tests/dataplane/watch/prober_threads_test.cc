// prober_threads_test.cc - a run of probes between three threads, for ThreadSanitizer
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "dataplane/watch/prober.h"

namespace gradlane::test::prober_threads_test {
namespace {

constexpr size_t kOverhead = 28;
constexpr std::array<uint8_t, kProbedClasses> kTos{0x28, 0x20, 0xc0};

// The main thread is the control thread. One other thread is the worker that sends, and one the worker that gets the
// answers. Virtual time advances only when both have run, so neither is late, however little CPU it gets.
TEST(ProberThreads, ProbesAreAnswered) {
  ProbeBoard board;
  std::atomic<uint64_t> mac{1};
  std::atomic<bool> end{false};
  std::atomic<uint32_t> last{0};
  std::array<std::atomic<uint64_t>, 2> rounds{};
  const auto clock = [&rounds] { return kSecond + std::min(rounds[0].load(), rounds[1].load()) * 20 * kMicrosecond; };
  std::thread sender([&] {
    for (ProbeOrder order; !end.load(); ++rounds[0]) {
      if (board.next(clock(), order)) last.store(order.id);
      std::this_thread::yield();
    }
  });
  std::thread receiver([&] {
    for (; !end.load(); ++rounds[1]) {
      ProbeHeader header{};
      header.id = last.load();
      header.nonce = 77;
      const size_t bytes = header.id / ProbeBoard::kSlots % 2 == 1 ? kLeastProbe : 1472;
      for (const uint8_t tos : kTos) {
        header.tos = tos;
        (void)board.put_answer(header, tos, bytes, clock());
      }
      std::this_thread::yield();
    }
  });
  ProbeRun run({1, "10.77.0.2", &mac, kTos, 1500, kOverhead}, board);
  for (int i = 0; i < 5; ++i) {
    run.begin(clock(), kSecond, 77);
    while (run.running()) {
      run.step(clock());
      std::this_thread::yield();
    }
    EXPECT_GT(run.result().answered, 0U);
  }
  end.store(true);
  sender.join();
  receiver.join();
}

}  // namespace
}  // namespace gradlane::test::prober_threads_test
