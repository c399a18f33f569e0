// log_file.cc - a file in place of standard error (control thread only)
#include "dataplane/daemon/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/file_descriptor.h"

namespace gradlane {
namespace {

constexpr mode_t kLogMode = 0640;

int starters = -1;  // descriptor of the standard error before open_log(); set before the first thread starts

}  // namespace

void open_log(const std::string& path) {
  if (path.empty()) return;
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, kLogMode));
  if (!file) throw SetupError("log_file: cannot open " + path + ": " + std::strerror(errno));
  if (starters < 0) starters = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  std::fflush(stderr);
  if (dup2(file.get(), STDERR_FILENO) < 0) throw SetupError("log_file: " + path + ": " + std::strerror(errno));
}

void write_to_original_stderr(const std::string& text) noexcept {
  // The reader may be gone, so errors are ignored.
  if (starters >= 0) (void)!write(starters, text.data(), text.size());
}

}  // namespace gradlane
