// loopback.cc - `gradlane loopback`: runs a loopback and prints its progress
#include "tools/loopback/loopback.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <system_error>

#include "tools/loopback/report.h"
#include "tools/loopback/settings.h"

namespace gradlane {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSlice = 0.02;  // s: longest time until a signal is noticed

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Blocks SIGINT and SIGTERM in this thread and in threads that start later, so that came() can poll for them.
class Interrupt {
 public:
  Interrupt() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    fd_ = signalfd(-1, &signals_, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
  }
  ~Interrupt() {
    // Discards late signals, which would otherwise end the process before the table is printed.
    while (came()) {
    }
    close(fd_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  [[nodiscard]] bool came() const {
    signalfd_siginfo info;
    return read(fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info));
  }

 private:
  sigset_t signals_;
  sigset_t before_;
  int fd_ = -1;
};

void pin(unsigned core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) {
    throw std::system_error(errno, std::generic_category(), fmt::format("--core {}", core));
  }
}

// Returns the CPU time of this thread. It is less than the elapsed time if others use the core, too.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Runs until the time is over or a signal comes. Returns the time that it has run.
LoopbackTime run_for(Loopback& loopback, const LoopbackSettings& plan, const Interrupt& interrupt, bool live) {
  LoopbackFigures before = loopback.figures();
  double printed_at = 0;
  double now = 0;
  const double cpu_start = cpu_seconds();
  const Clock::time_point start = Clock::now();
  while (!interrupt.came()) {
    double slice = kSlice;
    if (plan.seconds > 0) slice = std::min(slice, plan.seconds - now);
    if (slice <= 0) break;
    loopback.run(static_cast<Nanos>(slice * 1e9) + 1);
    now = seconds_since(start);
    if (!live || now < printed_at + 1) continue;
    const LoopbackRates rates = loopback_rates(plan, before, loopback.figures(), now - printed_at);
    print_loopback_line(plan, now, rates, loopback.figures());
    before = loopback.figures();
    printed_at = now;
  }
  return {now, cpu_seconds() - cpu_start};
}

}  // namespace

int run_loopback(const LoopbackOptions& options) {
  const LoopbackSettings plan = plan_loopback(options);
  const Interrupt interrupt;
  // JSON output must not contain the lines of every second.
  const bool live = !options.json && (options.stats || isatty(STDOUT_FILENO) != 0);
  Loopback loopback(plan.config);
  pin(plan.core);
  if (live) print_loopback_head(plan);
  const LoopbackTime time = run_for(loopback, plan, interrupt, live);
  loopback.stop();
  const LoopbackFigures& figures = loopback.figures();
  if (options.json) {
    fmt::print("{}\n", loopback_json(plan, figures, time));
  } else {
    if (!live) print_loopback_head(plan);
    print_loopback_table(plan, figures, time);
  }
  return figures.identical ? 0 : 1;
}

}  // namespace gradlane
