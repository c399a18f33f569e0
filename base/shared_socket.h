// shared_socket.h - files whose last close may take long, and sockets over which other processes may send such files
// (control thread, and the worker for its bells)
//
// A process can send open files over a Unix socket (SCM_RIGHTS), and close them itself. The thread that then drops the
// message may have to wait: a TCP socket lingers as long as its owner has said, and a GiB of memory takes a fifth of a
// second to free. The kernel drops files in recv(), if there is no room for them, and in close() of a socket with
// unread messages.
#pragma once

#include <sys/epoll.h>
#include <sys/types.h>

#include <cstddef>
#include <span>
#include <utility>

namespace gradlane {

// A file that a thread of its own closes. One thread serves all files of the process, until it ends.
class SharedFile {
 public:
  SharedFile() = default;
  // Throws SetupError if the first file of the process cannot start the thread.
  explicit SharedFile(int fd);
  SharedFile(SharedFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  SharedFile& operator=(SharedFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~SharedFile() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept;

  // Returns whether new files should not be accepted, because more than a thousand wait for the thread.
  [[nodiscard]] static bool too_many() noexcept;

 private:
  int fd_ = -1;
};

// A socket whose other end belongs to another process. reset() shuts it down at once, so that the other process can
// read what was sent to it and then sees the end, and leaves close() to the thread.
class SharedSocket {
 public:
  SharedSocket() = default;
  explicit SharedSocket(int fd);  // as SharedFile; does not change errno
  SharedSocket(SharedSocket&& other) noexcept { swap(other); }
  SharedSocket& operator=(SharedSocket&& other) noexcept {
    swap(other);
    return *this;
  }
  ~SharedSocket() { reset(); }

  [[nodiscard]] int get() const noexcept { return file_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(file_); }
  // Adds the socket to an epoll instance, which must outlive this object. reset(), or adding it to another instance,
  // removes it. Returns false and sets errno if that fails.
  [[nodiscard]] bool add_to(int epoll, epoll_event event) noexcept;
  // Receives bytes as recv() does, but never waits, and takes no files. If files come with these bytes or right behind
  // them, the bytes stay in the socket, and the result is -1 with errno EPERM. Only one thread may receive.
  [[nodiscard]] ssize_t receive(std::span<std::byte> bytes, int flags = 0) const noexcept;
  void reset() noexcept;

 private:
  void swap(SharedSocket& other) noexcept;

  SharedFile file_;
  int epoll_ = -1;
};

}  // namespace gradlane
