// default_file.h - where the calibration of this host is, if nobody says (set-up only)
#pragma once

#include <string>
#include <vector>

#include "base/file_descriptor.h"

namespace gradlane {

// Where `gradlane plan --calibrate` writes it: /etc/gradlane/calibration.yaml for root, else
// $XDG_CONFIG_HOME/gradlane/calibration.yaml, or that in ~/.config. Throws SetupError where there is no home.
[[nodiscard]] std::string calibration_target();

// Where it is looked for, in this order: the user's own, then the machine's.
[[nodiscard]] std::vector<std::string> calibration_places();

// A file that is being written: nobody sees it before it is there as a whole.
class NewFile {
 public:
  // Makes its folder, if asked: that of a name that somebody gave may be a slip. Throws SetupError if it could not be
  // written.
  explicit NewFile(std::string path, bool make_folder = false);

  // In place of what was there. Throws SetupError.
  void put(const std::string& text);
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  [[nodiscard]] FileDescriptor make_beside(std::string& name) const;

  std::string path_;
};

}  // namespace gradlane
