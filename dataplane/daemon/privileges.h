// privileges.h - from root to a user who may do little, once everything is open (control thread)
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gradlane {

// What root is needed for is done at the start: devices, raw sockets, CPUs, hugepages. After drop() the process is the
// user in all its threads, in the user's groups, without any capability, and cannot get one back by exec either.
class Privileges {
 public:
  // Empty `user`: nothing below does anything. A process that is the user already, without capabilities, only gets the
  // ban on new privileges. Throws SetupError: there is no such user; this process is not root and somebody else; it is
  // the user and has capabilities. Before the first thread starts, as threads inherit the ban.
  explicit Privileges(const std::string& user);

  // Sees to it that the folder of a file that the daemon will make is the user's, if it is not there yet; else the
  // user could not remove the file at the end.
  void prepare_folder_of(const std::string& path) const;
  // Gives a file to the user, who must be able to use or remove it. Nothing happens if there is none.
  void give(const std::string& path) const;
  // Throws SetupError if anything of root is left.
  void drop() const;

  // Whether this process, as what it is now, can make files there, and remove its own.
  [[nodiscard]] static bool may_write_to(const std::string& folder);

  [[nodiscard]] bool active() const noexcept { return active_; }

 private:
  std::string user_;
  bool active_ = false;
  uid_t uid_ = 0;
  gid_t gid_ = 0;
};

// "/run/x" of "/run/x/y.sock".
[[nodiscard]] std::string folder_of(const std::string& path);

// After drop(): the log says which of these files the user may not remove at the end.
void warn_of_leftovers(const std::string& user, const std::vector<std::string>& files);

}  // namespace gradlane
