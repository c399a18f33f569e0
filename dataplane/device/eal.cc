// eal.cc - starting and stopping EAL (control thread); the clock (any thread)
#include "dataplane/device/eal.h"

#include <pthread.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_interrupts.h>
#include <rte_log.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <vector>

#include "base/error.h"
#include "dataplane/device/eal_messages.h"
#include "dataplane/kernel/hugepages.h"
#include "dataplane/kernel/kernel_interface.h"

namespace gradlane {
namespace {

// Returns the first CPU of `set` at this NUMA node, or the first of all if none is there. -1 means any node.
unsigned first_cpu(const cpu_set_t& set, int node) {
  std::optional<unsigned> first;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    if (node < 0 || numa_node_of(cpu) == node) return cpu;
    if (!first) first = cpu;
  }
  return first.value_or(0);
}

__extension__ using Wide = unsigned __int128;

// Nanoseconds per cycle as a fixed-point number with 32 fractional bits; written once by start_eal().
uint64_t nanos_per_cycle = 0;

// Readings of the time stamp counter and of CLOCK_MONOTONIC at the same time.
struct ClockPair {
  uint64_t cycles = 0;
  Nanos time = 0;
};

// Reads both clocks several times. Returns the pair whose reading took the least time.
ClockPair read_clocks() noexcept {
  constexpr int kReadings = 16;
  ClockPair best;
  uint64_t fewest = UINT64_MAX;
  for (int i = 0; i < kReadings; ++i) {
    const uint64_t before = rte_rdtsc();
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t cycles = rte_rdtsc() - before;
    if (cycles >= fewest) continue;
    fewest = cycles;
    best = {before + cycles / 2, static_cast<Nanos>(now.tv_sec) * kSecond + static_cast<Nanos>(now.tv_nsec)};
  }
  return best;
}

thread_local bool in_eal_init = false;        // whether this thread is in rte_eal_init()
constexpr long kMostSleepNanos = 10'000'000;  // limit of a sleep in rte_eal_init()

// Returns the value of --socket-mem, whose first number is for node 0. `node` -1 means that there is one node.
std::string memory_of_node(int node, size_t megabytes) {
  std::string text;
  for (int i = 0; i < node; ++i) text += "0,";
  return text + std::to_string(megabytes);
}

// A private folder for what DPDK makes at its start: dpdk/rte, in which it puts nothing with these options. DPDK's
// default for users other than root is /tmp/dpdk, which another user may have made.
class RuntimeFolder {
 public:
  RuntimeFolder() {
    if (const char* const before = std::getenv(kVariable)) before_ = before;
    if (mkdtemp(path_.data()) == nullptr) return;
    made_ = true;
    setenv(kVariable, path_.c_str(), 1);
  }
  ~RuntimeFolder() {
    if (!made_) return;
    for (const char* const below : {"/dpdk/rte", "/dpdk", ""}) rmdir((path_ + below).c_str());
    before_ ? setenv(kVariable, before_->c_str(), 1) : unsetenv(kVariable);
  }
  RuntimeFolder(const RuntimeFolder&) = delete;
  RuntimeFolder& operator=(const RuntimeFolder&) = delete;

 private:
  static constexpr const char* kVariable = "RUNTIME_DIRECTORY";
  std::string path_ = "/tmp/gradlane-dpdk-" + std::to_string(getpid()) + "-XXXXXX";
  std::optional<std::string> before_;
  bool made_ = false;
};

// Returns the error text after EAL has refused to start.
std::string why_not(const EalOptions& options, size_t megabytes, const Hugepages& before, const std::string& messages) {
  const std::string error = rte_errno == 0 ? "" : std::string(": ") + rte_strerror(rte_errno);
  const size_t bytes = megabytes << 20;
  // If DPDK had no memory, another process may have taken hugepages meanwhile. After other faults, this process has
  // some.
  const bool no_memory = messages.find("Cannot init memory") != std::string::npos;
  const Hugepages hugepages =
      options.hugepages && no_memory ? hugepages_for(node_of_cards(options.pci), bytes) : before;
  if (options.hugepages && !enough(hugepages, bytes)) {
    return "DPDK did not start: too few hugepages: " + hugepages_text(hugepages, bytes) + "; " +
           hugepages_advice(hugepages, bytes);
  }
  if (!messages.empty()) return "DPDK did not start: " + messages;
  return "DPDK did not start" + error + "; it needs about " + std::to_string(megabytes) + " MiB of memory" +
         (options.hugepages ? " in hugepages; `memory: {hugepages: false}` runs without them" : "");
}

size_t bytes_of(const msghdr& message) noexcept {
  size_t bytes = 0;
  for (size_t i = 0; i < message.msg_iovlen; ++i) bytes += message.msg_iov[i].iov_len;
  return bytes;
}

}  // namespace
}  // namespace gradlane

// Replaces libc's sendmsg(); DPDK's drivers call this one. A memif server greets each client. If the client is gone,
// the server closes the socket while DPDK's interrupt thread still watches it. Then the process ends: "PANIC in
// eal_intr_thread_main()". So in that thread a greeting to a client that is gone counts as sent. The thread then learns
// that the client has hung up, and the driver closes everything in order.
extern "C" __attribute__((visibility("default"))) ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  const ssize_t sent = syscall(SYS_sendmsg, socket, message, flags);
  const bool gone = sent < 0 && (errno == EPIPE || errno == ECONNRESET);
  return gone && rte_thread_is_intr() != 0 ? static_cast<ssize_t>(gradlane::bytes_of(*message)) : sent;
}

// Replaces libc's nanosleep(); DPDK calls this one. On virtual machines rte_eal_init() sleeps 100 ms to measure the
// frequency of the time stamp counter. 10 ms are enough, because DPDK uses the frequency only in rte_delay_us().
// clock_now() uses the measurement of start_eal().
extern "C" __attribute__((visibility("default"))) int nanosleep(const timespec* time, timespec* left) {
  timespec sleep = *time;
  if (gradlane::in_eal_init && (sleep.tv_sec > 0 || sleep.tv_nsec > gradlane::kMostSleepNanos)) {
    sleep = {0, gradlane::kMostSleepNanos};
  }
  const int error = clock_nanosleep(CLOCK_MONOTONIC, 0, &sleep, left);
  if (error != 0) errno = error;
  return error == 0 ? 0 : -1;
}

namespace gradlane {

void start_eal(const EalOptions& options) {
  cpu_set_t affinity;
  CPU_ZERO(&affinity);
  pthread_getaffinity_np(pthread_self(), sizeof(affinity), &affinity);

  const size_t megabytes = (options.memory_bytes >> 20) + 16;
  // Packets are best on the NUMA node of their card. DPDK's own data must be on the node of its CPU: DPDK panics if
  // that node has no memory.
  const Hugepages hugepages =
      options.hugepages ? hugepages_for(node_of_cards(options.pci), megabytes << 20) : Hugepages();
  const int node = hugepages.node;
  std::vector<std::string> arguments = {"gradlaned", "-l", std::to_string(first_cpu(affinity, node)),
                                        options.verbose ? "--log-level=*:7" : "--log-level=*:4"};
  if (options.hugepages) {
    // All pages are in one file, so that vhost can pass it to the other side.
    arguments.insert(arguments.end(),
                     {"--in-memory", "--single-file-segments", "--socket-mem", memory_of_node(node, megabytes)});
  } else {
    // These options work on any machine, leave no files, and need no name that another process could use.
    arguments.insert(arguments.end(), {"--no-huge", "--no-shconf", "-m", std::to_string(megabytes)});
  }
  if (options.pci.empty()) arguments.emplace_back("--no-pci");
  for (const std::string& device : options.pci) arguments.insert(arguments.end(), {"-a", device});
  arguments.emplace_back("--no-telemetry");

  const ClockPair begin = read_clocks();
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int parsed = 0;
  std::string messages;
  {
    const RuntimeFolder folder;
    EalMessages heard;
    in_eal_init = options.pci.empty();  // drivers of NICs may need long sleeps
    parsed = rte_eal_init(static_cast<int>(argv.size() - 1), argv.data());
    in_eal_init = false;
    messages = heard.errors();
  }
  // EAL has pinned this thread to the core of -l. Threads started from now on would inherit that.
  pthread_setaffinity_np(pthread_self(), sizeof(affinity), &affinity);
  if (parsed < 0) throw SetupError(why_not(options, megabytes, hugepages, messages));
  // These drivers log at length whenever the other side does not run. The daemon itself reports that.
  for (const char* const driver : {"pmd.net.memif*", "pmd.net.vhost*", "pmd.net.virtio.*", "lib.vhost.*"}) {
    rte_log_set_level_pattern(driver, options.verbose ? RTE_LOG_DEBUG : RTE_LOG_CRIT);
  }
  const ClockPair end = read_clocks();
  if (end.cycles <= begin.cycles) throw SetupError("the time stamp counter of this machine does not increase");
  nanos_per_cycle =
      static_cast<uint64_t>((static_cast<Wide>(end.time - begin.time) << 32) / (end.cycles - begin.cycles));
}

void stop_eal() { rte_eal_cleanup(); }

Nanos clock_now() noexcept { return static_cast<Nanos>((static_cast<Wide>(rte_rdtsc()) * nanos_per_cycle) >> 32); }

}  // namespace gradlane
