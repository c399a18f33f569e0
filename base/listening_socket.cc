// listening_socket.cc - a listening Unix socket of a node: its directory, its lock, its file (control thread)
#include "base/listening_socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/socket_folders.h"

namespace gradlane {
namespace {

constexpr int kBacklog = 64;
constexpr mode_t kDirectoryMode = 0750;
constexpr mode_t kPrivateMode = 0700;  // for the folder in /tmp, where every user may create folders
constexpr mode_t kLockMode = 0600;
constexpr mode_t kSocketUmask = 0117;  // leaves 0660

[[noreturn]] void fail(const std::string& what, int error) { throw SetupError(what + ": " + std::strerror(error)); }

[[noreturn]] void fail_taken(const std::string& path, const std::string& setting) {
  throw SetupError("another daemon listens on " + path + "; stop it, or give this one another path (" + setting +
                   ", or --set " + setting + "=PATH)");
}

const std::string& checked(const std::string& path, const std::string& setting) {
  constexpr size_t kMost = sizeof(sockaddr_un::sun_path) - 1;
  if (path.empty()) throw SetupError("the path of the socket is empty (" + setting + ")");
  if (path.size() > kMost) {
    throw SetupError("the path of the socket, " + path + ", has " + std::to_string(path.size()) + " bytes; at most " +
                     std::to_string(kMost) + " are possible (" + setting + ")");
  }
  return path;
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

SharedSocket make_socket(ListeningSocket::Kind kind) {
  const int type = kind == ListeningSocket::Kind::kStream ? SOCK_STREAM : SOCK_SEQPACKET;
  SharedSocket fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail("cannot create a Unix socket", errno);
  return fd;
}

// Removes a socket file that nobody listens on.
void remove_stale(const std::string& path, ListeningSocket::Kind kind, const std::string& setting) {
  struct stat there {};
  if (lstat(path.c_str(), &there) != 0) {
    if (errno == ENOENT) return;
    fail("cannot access " + path, errno);
  }
  if (!S_ISSOCK(there.st_mode)) {
    throw SetupError(path + " exists and is not a socket; remove it, or give the daemon another path (" + setting +
                     ")");
  }
  const SharedSocket fd = make_socket(kind);
  const sockaddr_un address = address_of(path);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) fail_taken(path, setting);
  // A daemon listens here that is busy (EAGAIN) or uses another type of socket (EPROTOTYPE).
  if (errno == EAGAIN || errno == EPROTOTYPE) fail_taken(path, setting);
  if (errno == ENOENT) return;
  if (errno != ECONNREFUSED) fail("cannot connect to " + path + " to see whether another daemon listens there", errno);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) fail("cannot remove the stale socket " + path, errno);
}

// Opens the lock file, first without O_CREAT. Where fs.protected_regular is on, root must not use O_CREAT on another
// user's file in /tmp. A killed daemon with the setting `user` can have left such a file.
FileDescriptor open_lock(const std::string& path) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  FileDescriptor fd(open(path.c_str(), kFlags));
  if (!fd && errno == ENOENT) fd = FileDescriptor(open(path.c_str(), kFlags | O_CREAT, kLockMode));
  return fd;
}

}  // namespace

SocketDirectory::SocketDirectory(const std::string& socket_path, const std::string& setting) {
  const size_t slash = socket_path.rfind('/');
  if (slash == std::string::npos || slash == 0) return;
  const std::string path = socket_path.substr(0, slash);
  const bool is_private = path == private_socket_folder(geteuid());
  if (mkdir(path.c_str(), is_private ? kPrivateMode : kDirectoryMode) == 0) {
    made_ = path;
    return;
  }
  const int error = errno;
  if (is_private && error == EEXIST) {
    if (is_private_folder(path, geteuid())) return;
    throw SetupError(path +
                     " must be a folder of this user with mode 0700, as every folder for sockets in /tmp: remove it, "
                     "or choose another path for the socket (" +
                     setting + ", or --set " + setting + "=PATH)");
  }
  struct stat there {};
  if (stat(path.c_str(), &there) == 0) return;
  throw SetupError("cannot create the directory " + path + " for the socket: " + std::strerror(error) +
                   "; create it for this user, or choose another path for the socket (" + setting + ", or --set " +
                   setting + "=PATH)");
}

SocketDirectory::~SocketDirectory() {
  if (!made_.empty()) rmdir(made_.c_str());
}

SocketLock::SocketLock(const std::string& socket_path, const std::string& setting) : path_(socket_path + ".lock") {
  // Tries again if a daemon that ended removed the file after we opened it and before we locked it.
  for (;;) {
    fd_ = open_lock(path_);
    if (!fd_) fail("cannot open the lock file " + path_, errno);
    if (flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) fail_taken(socket_path, setting);
      fail("cannot lock " + path_, errno);
    }
    struct stat ours {};
    struct stat there {};
    if (fstat(fd_.get(), &ours) != 0) fail("cannot access " + path_, errno);
    // The daemon may give this file to another user, together with the socket. So it must be a regular file without
    // other hard links.
    if (!S_ISREG(ours.st_mode) || ours.st_nlink > 1)
      throw SetupError(path_ + " is not a daemon's lock file: remove it");
    if (stat(path_.c_str(), &there) == 0 && ours.st_dev == there.st_dev && ours.st_ino == there.st_ino) return;
  }
}

SocketLock::~SocketLock() { unlink(path_.c_str()); }

ListeningSocket::ListeningSocket(const std::string& path, Kind kind, const std::string& setting)
    : path_(checked(path, setting)), directory_(path, setting), lock_(path, setting) {
  remove_stale(path, kind, setting);
  fd_ = make_socket(kind);
  const sockaddr_un address = address_of(path);
  const mode_t before = umask(kSocketUmask);
  const int bound = bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = errno;
  umask(before);
  if (bound != 0) fail("cannot create the socket " + path, error);
  struct stat ours {};
  if (stat(path.c_str(), &ours) != 0) fail("cannot access " + path, errno);
  device_ = ours.st_dev;
  inode_ = ours.st_ino;
}

void ListeningSocket::open() const {
  if (listen(fd_.get(), kBacklog) != 0) fail("cannot listen on " + path_, errno);
}

ListeningSocket::~ListeningSocket() {
  struct stat there {};
  if (lstat(path_.c_str(), &there) != 0 || there.st_dev != device_ || there.st_ino != inode_) return;
  unlink(path_.c_str());
}

}  // namespace gradlane
