// privileges.cc - the change from root to a user with few rights, once everything is open (control thread)
#include "dataplane/daemon/privileges.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/file_descriptor.h"

namespace gradlane {
namespace {

constexpr mode_t kFolderMode = 0750;

[[noreturn]] void fail(const std::string& what) { throw SetupError(what + ": " + std::strerror(errno)); }

// Returns whether this thread has any capability left.
bool has_capabilities() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  if (syscall(SYS_capget, &header, sets.data()) != 0) return true;
  for (const auto& set : sets) {
    if ((set.effective | set.permitted) != 0) return true;
  }
  return false;
}

}  // namespace

Privileges::Privileges(const std::string& user) : user_(user) {
  if (user.empty()) return;
  errno = 0;
  const passwd* const entry = getpwnam(user.c_str());
  if (entry == nullptr) {
    throw SetupError("user: there is no user '" + user + "' on this machine (getent passwd lists them)");
  }
  if (entry->pw_uid == 0) throw SetupError("user: '" + user + "' is root, which has all rights: name another user");
  const bool is_user = geteuid() == entry->pw_uid;
  if (is_user && has_capabilities()) {
    // Each thread has its own capabilities. Only a change from root to a user drops those of DPDK's threads too.
    throw SetupError("user: started as '" + user + "' with capabilities, which could not be dropped for all threads: " +
                     "start the daemon as root instead, or without capabilities, or leave `user` out to keep them");
  }
  if (!is_user && geteuid() != 0) {
    throw SetupError("user: only root can become '" + user + "': start the daemon as root, or as that user");
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("user: cannot set no_new_privs");
  if (is_user) return;
  uid_ = entry->pw_uid;
  gid_ = entry->pw_gid;
  active_ = true;
}

void Privileges::prepare_folder_of(const std::string& path) const {
  const size_t slash = path.rfind('/');
  if (!active_ || slash == std::string::npos || slash == 0) return;
  const std::string folder = path.substr(0, slash);
  if (mkdir(folder.c_str(), kFolderMode) != 0) return;  // it exists, or the code that uses it will report the error
  give(folder);
}

void Privileges::give(const std::string& path) const {
  if (!active_ || path.empty()) return;
  // A path in a folder of the user may be replaced at any time, for example by a link to a file of root. So the file is
  // opened without following links, and only this descriptor is used.
  const FileDescriptor fd(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!fd && errno == ENOENT) return;
  struct stat what {};
  if (!fd || fstat(fd.get(), &what) != 0) fail("user: cannot open " + path);
  if (!S_ISDIR(what.st_mode) && what.st_nlink > 1)
    throw SetupError("user: " + path + " has more than one hard link: remove it");
  if (fchownat(fd.get(), "", uid_, gid_, AT_EMPTY_PATH) != 0)
    fail("user: cannot change the owner of " + path + " to " + user_);
}

bool Privileges::may_write_to(const std::string& folder) {
  return faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0;
}

void Privileges::drop() const {
  if (!active_) return;
  // glibc makes these calls in all threads of the process.
  if (initgroups(user_.c_str(), gid_) != 0) fail("user: cannot switch to the groups of " + user_);
  if (setresgid(gid_, gid_, gid_) != 0) fail("user: cannot switch to the group of " + user_);
  // All capabilities are dropped with the last user id that is root's (capabilities(7)).
  if (setresuid(uid_, uid_, uid_) != 0) fail("user: cannot switch to user " + user_);
  if (has_capabilities() || setuid(0) == 0)
    throw SetupError("user: rights of root are left after the switch; see capabilities(7)");
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
}

void warn_of_leftovers(const std::string& user, const std::vector<std::string>& files) {
  std::set<std::string> folders;
  for (const std::string& path : files) {
    if (!path.empty()) folders.insert(folder_of(path));
  }
  for (const std::string& folder : folders) {
    if (Privileges::may_write_to(folder)) continue;
    spdlog::warn("user {} cannot write to {}: the daemon's sockets and lock files stay there when it ends", user,
                 folder);
  }
}

}  // namespace gradlane
