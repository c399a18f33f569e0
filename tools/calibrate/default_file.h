// default_file.h - default places of this host's calibration (set-up only)
#pragma once

#include <string>
#include <vector>

#include "base/file_descriptor.h"

namespace gradlane {

// Returns the default path for `gradlane plan --calibrate` to write: /etc/gradlane/calibration.yaml for root. For
// others it is $XDG_CONFIG_HOME/gradlane/calibration.yaml, or the same file in ~/.config. Throws SetupError if there is
// no home.
[[nodiscard]] std::string calibration_target();

// Returns the paths where a calibration is looked for, in this order: the user's own, then the machine's.
[[nodiscard]] std::vector<std::string> calibration_places();

// A file to write. It appears under its path only when it is complete.
class NewFile {
 public:
  // Checks that the file can be written, and throws SetupError if not. With `make_folder`, creates its folder. Callers
  // must not set it for a path that a user gave, because a missing folder may be a typing error.
  explicit NewFile(std::string path, bool make_folder = false);

  // Writes `text` to a new file, and replaces the file at path() by it. Throws SetupError.
  void put(const std::string& text);
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  [[nodiscard]] FileDescriptor make_beside(std::string& name) const;

  std::string path_;
};

}  // namespace gradlane
