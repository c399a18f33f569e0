// listening_socket.h - a listening socket of a node: its directory, its lock, its file (control thread)
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/file_descriptor.h"

namespace gradlane {

// Made if it is missing, with mode 0750; if so, removed again if it is empty then. private_socket_folder() has mode
// 0700, and is refused if it is anything else.
class SocketDirectory {
 public:
  SocketDirectory(const std::string& socket_path, const std::string& setting);
  ~SocketDirectory();
  SocketDirectory(const SocketDirectory&) = delete;
  SocketDirectory& operator=(const SocketDirectory&) = delete;

 private:
  std::string made_;  // empty: it was there
};

// Two daemons that start at once may both find a socket file that nobody listens on; the slower one would then remove
// the file that the faster one has just made in its place. Whoever holds the lock, the file PATH.lock, may do that. The
// kernel takes it from a daemon that dies, so what is left of one does not matter.
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

// All of it. Everything throws SetupError, which names the setting of the path.
class ListeningSocket {
 public:
  enum class Kind : uint8_t { kPackets, kStream };
  explicit ListeningSocket(const std::string& path, Kind kind = Kind::kPackets, const std::string& setting = "socket");
  ~ListeningSocket();
  void open() const;  // connections are refused before
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // Whoever wants to connect is refused from now on. The file stays, and the path is ours until the end.
  void stop() noexcept { fd_.reset(); }

 private:
  std::string path_;
  SocketDirectory directory_;
  SocketLock lock_;
  FileDescriptor fd_;
  dev_t device_ = 0;  // of the file, to remove no other
  ino_t inode_ = 0;
};

}  // namespace gradlane
