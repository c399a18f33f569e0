// socket_folders.cc - the default folders of daemons' sockets (set-up only)
#include "base/socket_folders.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace gradlane {
namespace {

bool may_write_to(const std::string& path) { return faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) == 0; }

}  // namespace

std::string private_socket_folder(uid_t user) { return "/tmp/gradlane-" + std::to_string(user); }

bool is_private_folder(const std::string& path, uid_t user) {
  struct stat there {};
  return lstat(path.c_str(), &there) == 0 && S_ISDIR(there.st_mode) && there.st_uid == user &&
         (there.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

std::vector<std::string> socket_folders(uid_t user, const std::string& runtime) {
  std::vector<std::string> folders = {kSystemSocketFolder};
  if (runtime.starts_with('/')) folders.push_back(runtime + "/gradlane");
  folders.push_back(private_socket_folder(user));
  return folders;
}

bool can_hold_sockets(const std::string& path) {
  struct stat there {};
  if (stat(path.c_str(), &there) == 0) return there.st_uid == geteuid() || may_write_to(path);
  const size_t slash = path.rfind('/');
  return slash != std::string::npos && may_write_to(path.substr(0, std::max<size_t>(slash, 1)));
}

}  // namespace gradlane
