// sleeps.cc - a replacement of client/library/waits.c that runs a test's function while the library sleeps
#include "tests/client/sleeps.h"

#include <sched.h>

#include <utility>

extern "C" {
#include "client/library/waits.h"
}

namespace gradlane {
namespace {

std::function<void()> during_sleeps;

}  // namespace

DuringSleeps::DuringSleeps(std::function<void()> work) { during_sleeps = std::move(work); }
DuringSleeps::~DuringSleeps() { during_sleeps = nullptr; }

}  // namespace gradlane

int gl_poll(pollfd* fds, unsigned count, int timeout_ms) { return poll(fds, count, timeout_ms); }

void gl_sleep_ms(int ms) {
  if (gradlane::during_sleeps) return gradlane::during_sleeps();
  (void)poll(nullptr, 0, ms);
}

void gl_yield() { (void)sched_yield(); }
