// containment.cc - the limits of a daemon once it runs: Landlock, and the order of all steps (control thread)
#include "dataplane/daemon/containment.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <set>
#include <thread>
#include <utility>

#include "base/file_descriptor.h"
#include "config/devargs.h"
#include "dataplane/daemon/privileges.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GRADLANE_UNCONTAINED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GRADLANE_UNCONTAINED
#endif
#endif

namespace gradlane {
namespace {

#ifdef GRADLANE_UNCONTAINED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// ---- Landlock (landlock(7)). Debian's headers lack its newer parts, and glibc its calls.

constexpr uint64_t kWriteFile = 1 << 1;
constexpr uint64_t kReadFile = 1 << 2;
constexpr uint64_t kReadDir = 1 << 3;
constexpr uint64_t kRemoveDir = 1 << 4;
constexpr uint64_t kRemoveFile = 1 << 5;
constexpr uint64_t kMakeDir = 1 << 7;
constexpr uint64_t kMakeReg = 1 << 8;
constexpr uint64_t kMakeSock = 1 << 9;
constexpr uint64_t kIoctlDev = 1 << 15;  // version 5

constexpr unsigned kAskVersion = 1;  // LANDLOCK_CREATE_RULESET_VERSION
constexpr int kPathBeneath = 1;      // LANDLOCK_RULE_PATH_BENEATH

struct RulesetAttributes {
  uint64_t files = 0;   // rights that only rules give
  uint64_t net = 0;     // version 4: TCP's bind() and connect()
  uint64_t scoped = 0;  // version 6: connections to abstract Unix sockets of others
};

struct __attribute__((packed)) PathRule {
  uint64_t allowed;
  int32_t folder;
};

// Returns all rights that this version of the ABI knows.
RulesetAttributes all_rights(int version) noexcept {
  RulesetAttributes all;
  const int bits = version >= 5 ? 16 : version >= 3 ? 15 : version == 2 ? 14 : 13;
  all.files = (uint64_t{1} << bits) - 1;
  if (version >= 4) all.net = 3;
  if (version >= 6) all.scoped = 1;
  return all;
}

size_t bytes_of_attributes(int version) noexcept { return version >= 6 ? 24 : version >= 4 ? 16 : 8; }

// A ruleset of Landlock: files and folders, with the rights that stay.
class Rules {
 public:
  explicit Rules(int version) {
    const RulesetAttributes all = all_rights(version);
    known_ = all.files;
    fd_ =
        FileDescriptor(static_cast<int>(syscall(SYS_landlock_create_ruleset, &all, bytes_of_attributes(version), 0U)));
    if (!fd_) error_ = errno;
  }

  // Allows this below `path`, if it exists.
  void allow(const std::string& path, uint64_t rights) {
    FileDescriptor opened(open(path.c_str(), O_PATH | O_CLOEXEC));
    if (!opened) return;
    struct stat what {};
    if (fstat(opened.get(), &what) == 0 && !S_ISDIR(what.st_mode)) rights &= kReadFile | kWriteFile | kIoctlDev;
    const PathRule rule{.allowed = rights & known_, .folder = opened.get()};
    if (fd_ && syscall(SYS_landlock_add_rule, fd_.get(), kPathBeneath, &rule, 0U) != 0) error_ = errno;
    opened_.push_back(std::move(opened));
  }

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] int error() const noexcept { return error_; }  // errno of a call that failed; 0: none
  [[nodiscard]] std::vector<FileDescriptor> take_opened() { return std::move(opened_); }

 private:
  uint64_t known_ = 0;
  FileDescriptor fd_;
  int error_ = 0;
  std::vector<FileDescriptor> opened_;
};

// Allows what a running daemon needs.
void add_rules(Rules& rules, const ContainmentNeeds& needs) {
  std::set<std::string> folders;
  for (const std::string& path : needs.files) folders.insert(folder_of(path));
  for (const std::string& folder : folders) {
    rules.allow(folder, kMakeSock | kRemoveFile);
    rules.allow(folder_of(folder), kRemoveDir);  // it removes a folder that it made
  }
  struct stat log {};
  if (!needs.log_file.empty() && stat(needs.log_file.c_str(), &log) == 0 && S_ISCHR(log.st_mode)) {
    rules.allow(needs.log_file, kWriteFile);  // a device such as /dev/null, but no other one beside it
  } else if (!needs.log_file.empty()) {
    const std::string folder = folder_of(needs.log_file);
    rules.allow(folder, kMakeReg | kWriteFile | (needs.removes_log ? kRemoveFile : 0));
    if (needs.removes_log) rules.allow(folder_of(folder), kRemoveDir);
  }
  // Statistics of the process, and the id that traces have.
  rules.allow("/proc/self", kReadFile | kReadDir);
  rules.allow("/proc/sys/kernel/random/boot_id", kReadFile);
  if (needs.bpf) rules.allow("/run", kMakeDir | kReadDir);  // libxdp's folder for locks, /run/xdp
  if (!needs.cards) return;
  rules.allow("/sys", kReadFile | kReadDir | kWriteFile);
  for (const char* const device : {"/dev/vfio", "/dev/infiniband"}) {
    rules.allow(device, kReadFile | kReadDir | kWriteFile | kIoctlDev);
  }
}

// ---- Threads. Before version 8, Landlock limits only the thread that asks for it, and so does no_new_privs. So each
// thread asks, in a handler of a signal, as glibc's setresuid() does it.

constexpr int kSignal = SIGURG;  // ignored before and after
constexpr std::chrono::seconds kMostWait{5};

std::atomic<int> wanted_rules{-1};  // written by the control thread, read by all threads
std::atomic<unsigned> answered{0};  // written by all threads, read by the control thread
std::atomic<int> first_error{0};    // as answered

void limit_this_thread(int) noexcept {
  const int before = errno;
  const int rules = wanted_rules.load(std::memory_order_acquire);
  const bool limited =
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && (rules < 0 || syscall(SYS_landlock_restrict_self, rules, 0U) == 0);
  if (!limited) first_error.store(errno, std::memory_order_relaxed);
  answered.fetch_add(1, std::memory_order_release);
  errno = before;
}

// Returns the numbers of all threads.
std::set<pid_t> threads_in(DIR* folder) {
  std::set<pid_t> threads;
  rewinddir(folder);
  while (const dirent* const entry = readdir(folder)) {
    if (entry->d_name[0] != '.') threads.insert(static_cast<pid_t>(std::atoi(entry->d_name)));
  }
  return threads;
}

// Limits this thread, and then all others. Threads that others start meanwhile are limited already, or found in a later
// round. Returns why a thread is not limited, or "".
std::string limit_all_threads(int rules) {
  wanted_rules.store(rules, std::memory_order_release);
  first_error.store(0, std::memory_order_relaxed);
  DIR* const folder = opendir("/proc/self/task");
  limit_this_thread(0);
  if (first_error.load(std::memory_order_relaxed) != 0 || folder == nullptr) {
    const int error = folder == nullptr ? ENOENT : first_error.load(std::memory_order_relaxed);
    if (folder != nullptr) closedir(folder);
    return std::strerror(error);
  }
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = &limit_this_thread;
  action.sa_flags = SA_RESTART;
  sigaction(kSignal, &action, &before);
  std::set<pid_t> asked = {gettid()};
  answered.store(0, std::memory_order_relaxed);
  unsigned expected = 0;
  const auto end = std::chrono::steady_clock::now() + kMostWait;
  for (bool more = true; more;) {
    more = false;
    for (const pid_t thread : threads_in(folder)) {
      if (!asked.insert(thread).second) continue;
      more = true;
      if (tgkill(getpid(), thread, kSignal) == 0) ++expected;
    }
    while (answered.load(std::memory_order_acquire) < expected && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  closedir(folder);
  sigaction(kSignal, &before, nullptr);
  if (const int error = first_error.load(std::memory_order_relaxed); error != 0) return std::strerror(error);
  const unsigned silent = expected - answered.load(std::memory_order_acquire);
  return silent == 0 ? "" : fmt::format("{} of {} threads did not answer", silent, expected + 1);
}

std::string why_no_landlock() {
  if (errno == ENOSYS) return "the kernel has none (Linux has it from 5.13 on)";
  if (errno == EOPNOTSUPP) return "the kernel was started without it (lsm=)";
  return fmt::format("refused: {}", std::strerror(errno));
}

void limit_files(const ContainmentNeeds& needs, Containment& result) {
  const auto version = static_cast<int>(syscall(SYS_landlock_create_ruleset, nullptr, size_t{0}, kAskVersion));
  if (version <= 0) {
    result.landlock = why_no_landlock();
    limit_all_threads(-1);
    return;
  }
  result.landlock_version = version;
  Rules rules(version);
  add_rules(rules, needs);
  if (const int error = rules.error(); error != 0) {
    result.landlock = fmt::format("refused: {}", std::strerror(error));
    limit_all_threads(-1);
    return;
  }
  result.reachable = rules.take_opened();
  result.landlock = limit_all_threads(rules.fd());
}

// ---- System calls

void limit_calls(const ContainmentNeeds& needs, Containment& result) {
  // The filter is for all threads, which also get no_new_privs. Calls that are refused are in the kernel's log. Without
  // SPEC_ALLOW, kernels before 5.16 slow a filtered process down, for the sake of programs that run foreign code.
  constexpr unsigned kFlags = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_LOG | SECCOMP_FILTER_FLAG_SPEC_ALLOW;
  std::vector<sock_filter> filter = call_filter(needs);
  const sock_fprog program{.len = static_cast<unsigned short>(filter.size()), .filter = filter.data()};
  const long status = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, kFlags, &program);
  if (status == 0) return;
  if (status > 0) {
    result.seccomp = fmt::format("thread {} has another filter", status);
  } else if (errno == ENOSYS || errno == EINVAL) {
    result.seccomp = "the kernel has none (Linux has it from 4.17 on)";
  } else {
    result.seccomp = fmt::format("refused: {}", std::strerror(errno));
  }
}

}  // namespace

void ContainmentNeeds::add(const PortConfig& port) {
  cards |= port.kind == PortConfig::Kind::kPci;
  bpf |= is_af_xdp(port);
}

std::string Containment::text() const {
  std::string text = "contained: no new privileges";
  if (kSanitized) return text + "; nothing else, because sanitizers need more";
  text += ", no core dumps";
  if (seccomp.empty()) text += ", system calls (seccomp)";
  if (landlock.empty()) text += fmt::format(", files (Landlock, version {})", landlock_version);
  if (!seccomp.empty()) text += "; not by seccomp: " + seccomp;
  if (!landlock.empty()) text += "; not by Landlock: " + landlock;
  return text;
}

Containment contain(const ContainmentNeeds& needs, bool wanted) {
  Containment result;
  if (!wanted) {
    spdlog::info("not contained: containment is false");
    return result;
  }
  if (kSanitized) {
    limit_all_threads(-1);
  } else {
    tzset();  // reads the time zone, which the log may not have needed yet
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    limit_files(needs, result);
    limit_calls(needs, result);
  }
  spdlog::info("{}", result.text());
  return result;
}

}  // namespace gradlane
