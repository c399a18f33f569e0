// containment_test.cc - what a contained process can do, and what not. Each case is a process of its own.
#include "dataplane/daemon/containment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <latch>
#include <string>
#include <thread>

namespace gradlane::test::containment_test {
namespace {

using Act = std::function<long()>;  // returns -1 and sets errno, or succeeds

constexpr int kUncontained = 200;  // exit status: this kernel contains nothing

// Runs `act` in a process that contains itself, and returns what waitpid() says. `act` runs in a thread that was there
// before, or in the one that calls contain(). The exit status is its errno, or 0.
int status_of(const ContainmentNeeds& needs, bool in_other_thread, const Act& act) {
  const pid_t child = fork();
  if (child == 0) {
    const auto run = [&act] { std::_Exit(act() == -1 ? errno : 0); };
    std::latch contained(1);
    std::thread other([&] {
      contained.wait();
      run();
    });
    spdlog::set_level(spdlog::level::off);
    const Containment result = contain(needs, true);
    if (!result.seccomp.empty() || !result.landlock.empty()) std::_Exit(kUncontained);
    if (in_other_thread) contained.count_down();
    if (in_other_thread) other.join();
    run();
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

std::string text_of(int status) {
  if (WIFSIGNALED(status)) return strsignal(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "success" : std::strerror(WEXITSTATUS(status));
}

class ContainmentTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "containment-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    std::filesystem::create_directory(folder_ + "/run");
    std::filesystem::create_directory(folder_ + "/log");
    needs_.files = {path("run/x.sock"), path("run/x.sock.lock")};
    needs_.log_file = path("log/x.log");
    if (status_of(needs_, false, [] { return 0; }) == kUncontained << 8) {
      GTEST_SKIP() << "this kernel has no seccomp or no Landlock";
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // Checks the result of `act` in both threads. In between, `tidy` repairs what the first one has changed.
  void expect(const std::string& what, const std::string& result, const Act& act, const Act& tidy = nullptr) const {
    for (const bool in_other_thread : {false, true}) {
      EXPECT_EQ(text_of(status_of(needs_, in_other_thread, act)), result)
          << what << (in_other_thread ? ", in another thread" : "");
      if (tidy) tidy();
    }
  }

  void expect_refused(const std::string& what, int error, const Act& act) const {
    expect(what, std::strerror(error), act);
  }
  void expect_fatal(const std::string& what, const Act& act) const { expect(what, strsignal(SIGSYS), act); }
  void expect_works(const std::string& what, const Act& act, const Act& tidy = nullptr) const {
    expect(what, "success", act, tidy);
  }

  ContainmentNeeds needs_;
  std::string folder_;
};

int bound(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

TEST_F(ContainmentTest, ProgramsAndForeignMemoryEndTheProcess) {
  expect_fatal("execve", [] { return execl("/bin/true", "true", nullptr); });
  expect_fatal("execveat", [] { return syscall(SYS_execveat, AT_FDCWD, "/bin/true", nullptr, nullptr, 0); });
  expect_fatal("ptrace", [] { return syscall(SYS_ptrace, 0, 0, 0, 0); });
  expect_fatal("process_vm_readv", [] { return syscall(SYS_process_vm_readv, getpid(), nullptr, 0, nullptr, 0, 0); });
  expect_fatal("io_uring_setup", [] { return syscall(SYS_io_uring_setup, 1, nullptr); });
  expect_fatal("mount", [] { return syscall(SYS_mount, nullptr, "/", nullptr, 0, nullptr); });
  expect_fatal("unshare", [] { return unshare(CLONE_NEWUSER); });
}

TEST_F(ContainmentTest, CallsThatNoDaemonNeedsAreRefused) {
  const auto socket_of = [](int family, int type) { return [=] { return socket(family, type, 0); }; };
  expect_refused("a process", EPERM, [] { return fork(); });
  expect_refused("TCP over IPv4", EPERM, socket_of(AF_INET, SOCK_STREAM | SOCK_CLOEXEC));
  expect_refused("TCP over IPv6", EPERM, socket_of(AF_INET6, SOCK_STREAM));
  expect_refused("raw IP", EPERM, socket_of(AF_INET, SOCK_RAW));
  expect_refused("packets of others", EPERM, socket_of(AF_PACKET, SOCK_RAW));
  expect_refused("another family", EPERM, socket_of(AF_VSOCK, SOCK_STREAM));
  expect_refused("code", EPERM, [] {
    return mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0;
  });
  expect_refused("data that becomes code", EPERM, [] {
    void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return page == MAP_FAILED ? 0 : mprotect(page, 4096, PROT_READ | PROT_EXEC);
  });
  expect_refused("typing into the terminal", EPERM, [] { return ioctl(0, TIOCSTI, "x"); });
  expect_refused("a signal to another process", EPERM, [] { return kill(getppid(), 0); });
  expect_refused("a signal to a thread of another process", EPERM,
                 [] { return syscall(SYS_tgkill, getppid(), getppid(), 0); });
  expect_refused("another mode", EPERM, [this] { return chmod(folder_.c_str(), 0777); });
  expect_refused("another user", EPERM, [] { return syscall(SYS_setresuid, 0, 0, 0); });
  expect_refused("core dumps", EPERM, [] { return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); });
  expect_refused("bpf", EPERM, [] { return syscall(SYS_bpf, -1, nullptr, 0); });
}

TEST_F(ContainmentTest, UnknownCallsAreThoseOfALaterKernel) {
  expect_refused("a call of the future", ENOSYS, [] { return syscall(100000); });
  expect_refused("clone3", ENOSYS, [] { return syscall(SYS_clone3, nullptr, 0); });
}

TEST_F(ContainmentTest, OtherFilesAreRefused) {
  const auto open_it = [](const std::string& path, int flags) {
    return [=] { return open(path.c_str(), flags, 0600); };
  };
  expect_refused("/etc/passwd", EACCES, open_it("/etc/passwd", O_RDONLY));
  expect_refused("a new file", EACCES, open_it(path("new"), O_WRONLY | O_CREAT));
  expect_refused("a new file in the folder of sockets", EACCES, open_it(path("run/new"), O_WRONLY | O_CREAT));
  expect_refused("reading the log", EACCES, open_it(needs_.log_file, O_RDONLY | O_CREAT));
  expect_refused("a device", EACCES, open_it("/dev/zero", O_RDWR));
  expect_refused("a process", EACCES, open_it("/proc/" + std::to_string(getppid()) + "/environ", O_RDONLY));
  expect_refused("a socket elsewhere", EACCES, [this] { return bound(path("new.sock")); });
  expect_refused("the log's removal", EACCES, [this] {
    close(open(needs_.log_file.c_str(), O_WRONLY | O_CREAT, 0600));
    return unlink(needs_.log_file.c_str());
  });
}

TEST_F(ContainmentTest, DeviceAsLogOpensNoOtherDevice) {
  needs_.log_file = "/dev/null";
  const auto open_it = [](const char* path) { return [=] { return open(path, O_WRONLY | O_APPEND); }; };
  expect_works("the log", open_it("/dev/null"));
  expect_refused("a device beside it", EACCES, open_it("/dev/zero"));
}

TEST_F(ContainmentTest, WhatADaemonDoesWorks) {
  const auto socket_of = [](int family, int type) { return [=] { return socket(family, type, 0); }; };
  expect_works("a thread", [] {
    std::thread([] {}).join();
    return 0;
  });
  expect_works("UDP over IPv4", socket_of(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK));
  expect_works("UDP over IPv6", socket_of(AF_INET6, SOCK_DGRAM));
  expect_works("netlink", socket_of(AF_NETLINK, SOCK_RAW));
  expect_works("an interface", [] { return if_nametoindex("lo") == 0 ? -1 : 0; });
  expect_works("shared memory", [] {
    const int fd = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ftruncate(fd, 4096) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) return -1;
    return mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0;
  });
  expect_works("figures of the process", [] { return open("/proc/self/statm", O_RDONLY); });
  expect_works("the log", [this] { return open(needs_.log_file.c_str(), O_WRONLY | O_APPEND | O_CREAT, 0600); });
  expect_works("abort's signal", [] { return raise(SIGCHLD); });
  expect_works("a socket, and its removal",
               [this] { return bound(needs_.files[0]) == 0 ? unlink(needs_.files[0].c_str()) : -1; });
  expect_works(
      "the removal of the folder", [this] { return rmdir(path("run").c_str()); },
      [this] { return mkdir(path("run").c_str(), 0700); });
}

TEST_F(ContainmentTest, NeedsAreAdded) {
  needs_.removes_log = true;
  expect_works(
      "the removal of the log",
      [this] {
        close(open(needs_.log_file.c_str(), O_WRONLY | O_CREAT, 0600));
        return unlink(needs_.log_file.c_str()) == 0 ? rmdir(path("log").c_str()) : -1;
      },
      [this] { return mkdir(path("log").c_str(), 0700); });
  PortConfig xdp;
  xdp.device = "net_af_xdp0,iface=eth1";
  needs_.add(xdp);
  EXPECT_TRUE(needs_.bpf);
  EXPECT_FALSE(needs_.cards);
  EXPECT_NE(text_of(status_of(needs_, false,
                              [] { return syscall(SYS_bpf, -1, nullptr, 0) == -1 && errno == EPERM ? -1 : 0; })),
            std::strerror(EPERM));
  PortConfig card;
  card.kind = PortConfig::Kind::kPci;
  needs_.add(card);
  expect_works("what the kernel knows of a card", [] { return open("/sys/devices/system/cpu/online", O_RDONLY); });
}

TEST_F(ContainmentTest, AllThreadsHaveTheFilterAndNoNewPrivileges) {
  // The thread reads its own status.
  expect_works("status", [] {
    const int fd = open(("/proc/self/task/" + std::to_string(gettid()) + "/status").c_str(), O_RDONLY);
    std::array<char, 4096> text{};
    if (read(fd, text.data(), text.size() - 1) <= 0) return -1L;
    errno = ENOMSG;
    return std::strstr(text.data(), "NoNewPrivs:\t1") != nullptr && std::strstr(text.data(), "Seccomp:\t2") != nullptr
               ? 0L
               : -1L;
  });
}

TEST_F(ContainmentTest, OffByConfiguration) {
  const pid_t child = fork();
  if (child == 0) {
    (void)contain(needs_, false);
    std::_Exit(open("/etc/passwd", O_RDONLY) >= 0 && prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(ContainmentText, SaysWhatIsMissing) {
  Containment both;
  both.landlock_version = 3;
  EXPECT_EQ(both.text(),
            "contained: no new privileges, no core dumps, system calls (seccomp), files (Landlock, version 3)");
  Containment old;
  old.seccomp = "refused: Operation not permitted";
  old.landlock = "the kernel has none (Linux has it from 5.13 on)";
  EXPECT_EQ(old.text(),
            "contained: no new privileges, no core dumps; not by seccomp: refused: Operation not permitted; not by "
            "Landlock: the kernel has none (Linux has it from 5.13 on)");
}

}  // namespace
}  // namespace gradlane::test::containment_test
