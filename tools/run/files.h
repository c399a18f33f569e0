// files.h - the files of `gradlane run`: a directory with sockets and a configuration file per node (set-up and end)
#pragma once

#include <string>
#include <vector>

#include "tools/run/settings.h"

namespace gradlane {

// Owns the directory. Removes it, with all that is in it, at the end.
class RunFiles {
 public:
  // Writes the configuration files. Throws SetupError.
  explicit RunFiles(const RunSettings& plan);
  ~RunFiles();
  RunFiles(const RunFiles&) = delete;
  RunFiles& operator=(const RunFiles&) = delete;

  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
  [[nodiscard]] std::string socket(unsigned node) const;  // socket for the node's trainers
  [[nodiscard]] std::string admin(unsigned node) const;   // admin socket of the node's daemon
  [[nodiscard]] std::string config(unsigned node) const;

 private:
  explicit RunFiles(std::string folder);

  std::string folder_;
};

// Returns the configuration file of a node. `folder` is the directory of the sockets.
[[nodiscard]] std::string run_config(const RunSettings& plan, unsigned node, const std::string& folder);

}  // namespace gradlane
