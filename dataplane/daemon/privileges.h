// privileges.h - the change from root to a user with few rights, once everything is open (control thread)
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gradlane {

// Gives up the rights of root. They are needed only at the start, for devices, raw sockets, CPUs and hugepages. After
// drop() all threads of the process run as the user, in the user's groups and without any capability. Not even exec can
// bring a capability back.
class Privileges {
 public:
  // With an empty `user`, none of the functions does anything. A process that is the user already, without
  // capabilities, only gets the no_new_privs flag. Throws SetupError if there is no such user, or if the user is root.
  // Throws SetupError as well if this process is neither root nor the user, or if it is the user and has capabilities.
  // Construct it before the first thread starts, because threads inherit the flag.
  explicit Privileges(const std::string& user);

  // Makes the folder of a file that the daemon will make, if it does not exist, and gives it to the user. Otherwise the
  // user could not remove the file at the end.
  void prepare_folder_of(const std::string& path) const;
  // Gives a file to the user, who must be able to use or remove it. Does nothing if the file does not exist.
  void give(const std::string& path) const;
  // Becomes the user. Throws SetupError if any right of root is left.
  void drop() const;

  // Returns whether this process, with its present rights, can make files in the folder and remove its own.
  [[nodiscard]] static bool may_write_to(const std::string& folder);

  [[nodiscard]] bool active() const noexcept { return active_; }

 private:
  std::string user_;
  bool active_ = false;
  uid_t uid_ = 0;
  gid_t gid_ = 0;
};

// Returns the folder of a file: "/run/x" for "/run/x/y.sock".
[[nodiscard]] std::string folder_of(const std::string& path);

// Warns of the folders of these files that the user may not write to: the files stay there at the end. Call it after
// drop().
void warn_of_leftovers(const std::string& user, const std::vector<std::string>& files);

}  // namespace gradlane
