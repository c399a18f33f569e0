// listening_socket.h - a listening Unix socket of a node: its directory, its lock, its file (control thread)
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/file_descriptor.h"
#include "base/shared_socket.h"

namespace gradlane {

// The directory of a socket. The constructor creates it with mode 0750 if it is missing. The destructor then removes it
// again if it is empty. private_socket_folder() gets mode 0700. If that folder exists and is not private, the
// constructor throws SetupError.
class SocketDirectory {
 public:
  SocketDirectory(const std::string& socket_path, const std::string& setting);
  ~SocketDirectory();
  SocketDirectory(const SocketDirectory&) = delete;
  SocketDirectory& operator=(const SocketDirectory&) = delete;

 private:
  std::string made_;  // directory that the constructor created; empty: it existed before
};

// The lock of a socket: the file PATH.lock. Only its holder may remove a socket file on which nobody listens. Without
// the lock, two daemons that start at once may both find such a file. The slower one would then remove the new socket
// file of the faster one. The kernel releases the lock of a daemon that dies, so a lock file that is left behind does
// no harm.
class SocketLock {
 public:
  SocketLock(const std::string& socket_path, const std::string& setting);
  ~SocketLock();
  SocketLock(const SocketLock&) = delete;
  SocketLock& operator=(const SocketLock&) = delete;

 private:
  std::string path_;
  FileDescriptor fd_;
};

// A listening socket with its directory and its lock. Errors throw SetupError, which names the setting of the path.
class ListeningSocket {
 public:
  enum class Kind : uint8_t { kPackets, kStream };
  explicit ListeningSocket(const std::string& path, Kind kind = Kind::kPackets, const std::string& setting = "socket");
  ~ListeningSocket();
  void open() const;  // connections are refused before this call
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // Adds the socket to an epoll instance, as SharedSocket does.
  [[nodiscard]] bool add_to(int epoll, epoll_event event) noexcept { return fd_.add_to(epoll, event); }
  // Refuses new connections from now on. The file stays, and the path stays locked until this object is destroyed.
  void stop() noexcept { fd_.reset(); }

 private:
  std::string path_;
  SocketDirectory directory_;
  SocketLock lock_;
  SharedSocket fd_;
  dev_t device_ = 0;  // device and inode of the socket file, so that no other file is removed
  ino_t inode_ = 0;
};

}  // namespace gradlane
