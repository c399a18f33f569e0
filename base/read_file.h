// read_file.h - a file that a user names, read as a whole (set-up only)
#pragma once

#include <cstddef>
#include <string>

namespace gradlane {

struct FileText {
  std::string text;
  std::string fault;  // why the file cannot be read; empty if it was read
};

// Reads the first `most` bytes of a regular file, or of one that a link leads to. Pipes, terminals and other devices
// are a fault: the call never waits for another process, because a daemon that starts does not react to signals.
[[nodiscard]] FileText read_file(const std::string& path, size_t most);

}  // namespace gradlane
