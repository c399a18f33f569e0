// shared_socket.h - sockets whose other end another process has (control thread, and the worker for its bells)
//
// A process can send open files over a Unix socket (SCM_RIGHTS), and close them itself. The thread that then drops the
// message may have to wait: a TCP socket lingers as long as its owner has said, and the memory of a large file takes
// seconds to free. Files are dropped when recv() has no space for them, and when a socket with unread messages is
// closed.
#pragma once

#include <sys/epoll.h>
#include <sys/types.h>

#include <cstddef>
#include <span>

namespace gradlane {

// Receives bytes as recv() does, but never waits, and takes no files. If files come with these bytes or right behind
// them, the bytes stay in the socket, and the result is -1 with errno EPERM. Only one thread may receive from a socket.
[[nodiscard]] ssize_t receive_without_files(int socket, std::span<std::byte> bytes, int flags = 0) noexcept;

// A socket that is shut down at once, and closed by another thread. The other process can read all that was sent to it,
// and then sees the end.
class SharedSocket {
 public:
  SharedSocket() = default;
  explicit SharedSocket(int fd) noexcept : fd_(fd) {}
  SharedSocket(SharedSocket&& other) noexcept { swap(other); }
  SharedSocket& operator=(SharedSocket&& other) noexcept {
    swap(other);
    return *this;
  }
  ~SharedSocket() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  // Adds the socket to an epoll instance, which it leaves when it is closed or added to another one. The instance must
  // outlive this object. Returns false and sets errno if that fails.
  [[nodiscard]] bool add_to(int epoll, epoll_event event) noexcept;
  void reset() noexcept;

 private:
  void swap(SharedSocket& other) noexcept;

  int fd_ = -1;
  int epoll_ = -1;
};

}  // namespace gradlane
