// containment.h - the limits of a daemon once it runs: system calls, files, privileges, core dumps (control thread)
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "config/config.h"

struct sock_filter;

namespace gradlane {

// Lists what a daemon still needs after its start, besides what it has open.
struct ContainmentNeeds {
  std::vector<std::string> files;  // sockets and lock files that it makes and removes; their folders if it made them
  std::string log_file;            // file that it opens again on SIGHUP; empty: none
  bool removes_log = false;        // whether it removes the log and its folder at its end
  bool cards = false;              // whether drivers of cards use /sys and their device files
  bool bpf = false;                // whether it removes an XDP program at its end

  // Adds what the driver of this port needs.
  void add(const PortConfig& port);
};

// Tells what limits all threads of this process.
struct Containment {
  std::string seccomp;       // why the kernel does not filter system calls; empty: it does, or was not asked to
  std::string landlock;      // why the kernel does not limit files; empty: it does, or was not asked to
  int landlock_version = 0;  // version of Landlock's ABI; 0: the kernel has none
  // Files and folders that stay reachable. The kernel forgets a file of /proc that nobody has open, and makes another
  // one of that name, which Landlock does not know.
  std::vector<FileDescriptor> reachable;

  // Returns one line for the log.
  [[nodiscard]] std::string text() const;
};

// Gives up what a daemon that runs does not need, for all threads and for good. Afterwards no program can be executed,
// and no file can be opened besides those of `needs`. A thread that calls what no daemon calls ends the process by
// SIGSYS; other calls that are not allowed fail with EPERM. Only root can trace the process, and it writes no core.
// A kernel that lacks a part is no error. With sanitizers, which need more calls, this only sets no_new_privs.
//
// Logs what limits the process, and only logs if `wanted` is false. Call it after the last change of the user.
Containment contain(const ContainmentNeeds& needs, bool wanted);

// Returns the filter of system calls as a program for seccomp(2).
[[nodiscard]] std::vector<sock_filter> call_filter(const ContainmentNeeds& needs);

}  // namespace gradlane
