// call_filter.cc - the system calls of a daemon once it runs, as a filter of seccomp(2) (control thread)
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "dataplane/daemon/containment.h"

namespace gradlane {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "the numbers of system calls of this architecture are not known here"
#endif

// Calls that are allowed with all arguments, also those of other versions of libc. Packets and waiting come first,
// because kernels before 5.11 compare the numbers one by one.
constexpr uint32_t kAllowed[] = {
    // packets, and waiting for them
    __NR_sendto,
    __NR_recvfrom,
    __NR_sendmsg,
    __NR_recvmsg,
    __NR_sendmmsg,
    __NR_recvmmsg,
    __NR_futex,
    __NR_ppoll,
    __NR_epoll_pwait,
    __NR_read,
    __NR_write,
    __NR_sched_yield,
    __NR_nanosleep,
    __NR_clock_nanosleep,
    __NR_clock_gettime,
    __NR_clock_getres,
    __NR_gettimeofday,
    __NR_readv,
    __NR_writev,
    __NR_pread64,
    __NR_pwrite64,
    __NR_pselect6,
#ifdef __x86_64__
    __NR_poll,
    __NR_epoll_wait,
    __NR_select,
    __NR_time,
#endif
    // descriptors
    __NR_close,
    __NR_close_range,
    __NR_fcntl,
    __NR_dup,
    __NR_dup3,
    __NR_lseek,
    __NR_epoll_create1,
    __NR_epoll_ctl,
    __NR_epoll_pwait2,
    __NR_eventfd2,
    __NR_timerfd_create,
    __NR_timerfd_settime,
    __NR_timerfd_gettime,
    __NR_timer_create,
    __NR_timer_settime,
    __NR_signalfd4,
    __NR_pipe2,
#ifdef __x86_64__
    __NR_dup2,
    __NR_epoll_create,
    __NR_eventfd,
    __NR_pipe,
#endif
    // sockets
    __NR_bind,
    __NR_connect,
    __NR_listen,
    __NR_accept,
    __NR_accept4,
    __NR_shutdown,
    __NR_getsockname,
    __NR_getpeername,
    __NR_setsockopt,
    __NR_getsockopt,
    __NR_socketpair,
    // memory
    __NR_munmap,
    __NR_mremap,
    __NR_madvise,
    __NR_brk,
    __NR_memfd_create,
    __NR_ftruncate,
    __NR_fallocate,
    __NR_mlock,
    __NR_munlock,
    __NR_msync,
    __NR_mincore,
    __NR_mbind,
    __NR_get_mempolicy,
    __NR_set_mempolicy,
    __NR_move_pages,
    // files: Landlock says which
    __NR_openat,
    __NR_openat2,
    __NR_fstat,
    __NR_newfstatat,
    __NR_statx,
    __NR_fstatfs,
    __NR_statfs,
    __NR_faccessat,
    __NR_faccessat2,
    __NR_readlinkat,
    __NR_getdents64,
    __NR_unlinkat,
    __NR_flock,
    __NR_fsync,
    __NR_getcwd,
#ifdef __x86_64__
    __NR_open,
    __NR_stat,
    __NR_lstat,
    __NR_access,
    __NR_readlink,
    __NR_unlink,
    __NR_rmdir,
#endif
    // threads and signals
    __NR_rt_sigaction,
    __NR_rt_sigprocmask,
    __NR_rt_sigreturn,
    __NR_rt_sigtimedwait,
    __NR_sigaltstack,
    __NR_restart_syscall,
    __NR_exit,
    __NR_exit_group,
    __NR_set_robust_list,
    __NR_rseq,
    __NR_set_tid_address,
    __NR_membarrier,
    __NR_gettid,
    __NR_getpid,
    __NR_getppid,
    __NR_sched_getaffinity,
    __NR_sched_setaffinity,
    __NR_sched_getparam,
    __NR_sched_getscheduler,
    __NR_sched_get_priority_max,
    __NR_sched_get_priority_min,
    __NR_getpriority,
    __NR_getcpu,
    // facts
    __NR_getuid,
    __NR_geteuid,
    __NR_getgid,
    __NR_getegid,
    __NR_getgroups,
    __NR_getrusage,
    __NR_times,
    __NR_uname,
    __NR_sysinfo,
    __NR_getrandom,
    __NR_umask,
};

// Calls that no daemon makes, but that a successful attack would begin with. They end the process.
constexpr uint32_t kFatal[] = {
    __NR_execve,          __NR_execveat,       __NR_ptrace,          __NR_process_vm_readv, __NR_process_vm_writev,
    __NR_mount,           __NR_umount2,        __NR_pivot_root,      __NR_chroot,           __NR_setns,
    __NR_unshare,         __NR_init_module,    __NR_finit_module,    __NR_delete_module,    __NR_kexec_load,
    __NR_reboot,          __NR_keyctl,         __NR_add_key,         __NR_request_key,      __NR_open_by_handle_at,
    __NR_userfaultfd,     __NR_io_uring_setup, __NR_perf_event_open, __NR_personality,
#ifdef __x86_64__
    __NR_kexec_file_load, __NR_fork,           __NR_vfork,
#endif
};

constexpr uint32_t kNewest = 450;  // number of the newest call that these lists take into account, of Linux 6.1

// Compares the low 32 bits of an argument. The kernel ignores the others in all arguments that are compared here.
struct Condition {
  unsigned argument;
  uint32_t mask;
  uint32_t value;
  bool equal = true;  // false: they must differ
};

// A call that is allowed if all conditions are met.
struct Rule {
  uint32_t call;
  std::vector<Condition> conditions;
};

std::vector<Rule> rules(const ContainmentNeeds& needs) {
  constexpr uint32_t kAll = UINT32_MAX;
  constexpr uint32_t kType = 0xf;  // a socket's type without its flags
  constexpr uint32_t kExec = PROT_EXEC;
  std::vector<Rule> rules = {
      // threads, but no processes
      {__NR_clone, {{0, CLONE_THREAD, CLONE_THREAD}}},
      {__NR_tgkill, {{0, kAll, static_cast<uint32_t>(getpid())}}},
      {__NR_prctl, {{0, kAll, PR_SET_NAME}}},
      // no executable memory
      {__NR_mmap, {{2, kExec, 0}}},
      {__NR_mprotect, {{2, kExec, 0}}},
      // only mode 0, as trainers' memory has
      {__NR_fchmod, {{1, kAll, 0}}},
      // no characters into the terminal from which the daemon was started
      {__NR_ioctl, {{1, kAll, TIOCSTI, false}, {1, kAll, TIOCLINUX, false}}},
      // no connections to other machines, and no raw sockets
      {__NR_socket, {{0, kAll, AF_UNIX}}},
      {__NR_socket, {{0, kAll, AF_NETLINK}}},
      {__NR_socket, {{0, kAll, AF_INET}, {1, kType, SOCK_DGRAM}}},
      {__NR_socket, {{0, kAll, AF_INET6}, {1, kType, SOCK_DGRAM}}},
  };
  if (needs.bpf) {
    rules.push_back({__NR_bpf, {}});
    rules.push_back({__NR_mkdirat, {}});  // libxdp's folder for locks, /run/xdp
#ifdef __x86_64__
    rules.push_back({__NR_mkdir, {}});
#endif
  }
  return rules;
}

constexpr auto kLoadNumber = static_cast<uint32_t>(offsetof(seccomp_data, nr));

sock_filter load(uint32_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset); }
sock_filter give(uint32_t verdict) { return BPF_STMT(BPF_RET | BPF_K, verdict); }
// Goes on with the next instruction if the accumulator has this value, and otherwise skips `skipped`.
sock_filter unless_equal_skip(uint32_t value, size_t skipped) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, static_cast<uint8_t>(skipped));
}

void add_rule(std::vector<sock_filter>& program, const Rule& rule) {
  constexpr size_t kSteps = 3;  // instructions of a condition
  size_t left = rule.conditions.size() * kSteps + 1;
  program.push_back(unless_equal_skip(rule.call, left));
  for (const Condition& it : rule.conditions) {
    left -= kSteps;
    program.push_back(load(static_cast<uint32_t>(offsetof(seccomp_data, args) + it.argument * sizeof(uint64_t))));
    program.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, it.mask));
    const auto skipped = static_cast<uint8_t>(left);
    program.push_back(it.equal ? unless_equal_skip(it.value, left)
                               : sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, it.value, skipped, 0));
  }
  program.push_back(give(SECCOMP_RET_ALLOW));
  program.push_back(load(kLoadNumber));  // a condition may have replaced it
}

}  // namespace

std::vector<sock_filter> call_filter(const ContainmentNeeds& needs) {
  std::vector<sock_filter> program = {
      load(static_cast<uint32_t>(offsetof(seccomp_data, arch))),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      give(SECCOMP_RET_KILL_PROCESS),
      load(kLoadNumber),
  };
#ifdef __x86_64__
  constexpr uint32_t kX32 = 0x40000000;  // numbers from here on are of the ABI x32
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32, 0, 1));
  program.push_back(give(SECCOMP_RET_KILL_PROCESS));
#endif
  for (const uint32_t call : kAllowed) {
    program.push_back(unless_equal_skip(call, 1));
    program.push_back(give(SECCOMP_RET_ALLOW));
  }
  for (const Rule& rule : rules(needs)) add_rule(program, rule);
  for (const uint32_t call : kFatal) {
    program.push_back(unless_equal_skip(call, 1));
    program.push_back(give(SECCOMP_RET_KILL_PROCESS));
  }
  // libc tries calls that a kernel may lack, and then uses older ones. clone3() has its flags in memory, where a filter
  // cannot see them.
  program.push_back(unless_equal_skip(__NR_clone3, 1));
  program.push_back(give(SECCOMP_RET_ERRNO | ENOSYS));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, kNewest, 0, 1));
  program.push_back(give(SECCOMP_RET_ERRNO | ENOSYS));
  program.push_back(give(SECCOMP_RET_ERRNO | EPERM));
  return program;
}

}  // namespace gradlane
