// ready.cc - tests whether a daemon that `gradlane run` has started is ready (main thread only)
#include "tools/run/ready.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace gradlane {
namespace {

// Connects without blocking. Returns -1 if nobody listens there.
int connect_to(const std::string& path, int type) {
  const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

}  // namespace

bool takes_trainers(const std::string& path) {
  const int fd = connect_to(path, SOCK_SEQPACKET);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

AdminProbe::~AdminProbe() { hang_up(); }

void AdminProbe::hang_up() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

bool AdminProbe::answers(const std::string& path) {
  if (fd_ < 0) {
    constexpr std::string_view kQuestion = "stats\n";
    fd_ = connect_to(path, SOCK_STREAM);
    if (fd_ >= 0 && send(fd_, kQuestion.data(), kQuestion.size(), MSG_NOSIGNAL) < 0) hang_up();
  }
  if (fd_ < 0) return false;
  char first = 0;
  const ssize_t got = recv(fd_, &first, 1, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  hang_up();
  return got == 1;
}

}  // namespace gradlane
