// log_file.cc - a file in place of standard error (control thread only)
#include "dataplane/daemon/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/file_descriptor.h"

namespace gradlane {
namespace {

constexpr mode_t kLogMode = 0640;

// Opens the file without waiting for a reader of a pipe. The file must not be a link: other users who may write to its
// folder would choose to what file this daemon writes. The folder may be a link.
FileDescriptor open_file(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
  FileDescriptor file(open(path.c_str(), kFlags, kLogMode));
  if (!file && errno == ELOOP) {
    throw SetupError("log_file: " + path + " is a symbolic link, allowed: a file, or a device such as /dev/null");
  }
  struct stat info {};
  // A pipe without a reader is ENXIO.
  if (!file || fstat(file.get(), &info) != 0) {
    throw SetupError("log_file: cannot open " + path + ": " + std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode) && !S_ISCHR(info.st_mode)) {
    throw SetupError("log_file: " + path + " is not a regular file, allowed: a file, or a device such as /dev/null");
  }
  if (fcntl(file.get(), F_SETFL, O_APPEND) != 0) {
    throw SetupError("log_file: cannot open " + path + ": " + std::strerror(errno));
  }
  return file;
}

int starters = -1;  // descriptor of the standard error before open_log(); set before the first thread starts

}  // namespace

void open_log(const std::string& path) {
  if (path.empty()) return;
  const FileDescriptor file = open_file(path);
  if (starters < 0) starters = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  std::fflush(stderr);
  if (dup2(file.get(), STDERR_FILENO) < 0) throw SetupError("log_file: " + path + ": " + std::strerror(errno));
}

void write_to_original_stderr(const std::string& text) noexcept {
  // The reader may be gone, so errors are ignored.
  if (starters >= 0) (void)!write(starters, text.data(), text.size());
}

}  // namespace gradlane
