// read_file.cc - a file that a user names, read as a whole (set-up only)
#include "base/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/file_descriptor.h"

namespace gradlane {

FileText read_file(const std::string& path, size_t most) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0) return {{}, std::strerror(errno)};
  if (!S_ISREG(info.st_mode)) return {{}, "it is not a regular file; put the text into one"};
  FileText result;
  // Files of /proc have size 0. The last read finds the end.
  const size_t first = std::min(static_cast<size_t>(info.st_size), most) + 1;
  for (size_t filled = 0; filled < most;) {
    if (filled == result.text.size()) result.text.resize(std::min(std::max(first, 2 * filled), most));
    const ssize_t count = read(file.get(), result.text.data() + filled, result.text.size() - filled);
    if (count < 0) return {{}, std::strerror(errno)};
    filled += static_cast<size_t>(count);
    if (count > 0) continue;
    result.text.resize(filled);
    break;
  }
  return result;
}

}  // namespace gradlane
