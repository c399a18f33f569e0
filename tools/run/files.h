// files.h - the files of `gradlane run`: a directory of its own with sockets and a configuration file per node
#pragma once

#include <string>
#include <vector>

#include "tools/run/plan.h"

namespace gradlane {

// Owns the directory: it goes with the object, and all that is in it.
class RunFiles {
 public:
  // Writes the configuration files. Throws SetupError.
  explicit RunFiles(const RunPlan& plan);
  ~RunFiles();
  RunFiles(const RunFiles&) = delete;
  RunFiles& operator=(const RunFiles&) = delete;

  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
  [[nodiscard]] std::string socket(unsigned node) const;  // of trainers
  [[nodiscard]] std::string admin(unsigned node) const;   // of an accelerator
  [[nodiscard]] std::string config(unsigned node) const;

 private:
  explicit RunFiles(std::string folder);

  std::string folder_;
};

// The configuration file of a node; `folder` is where sockets are.
[[nodiscard]] std::string run_config(const RunPlan& plan, unsigned node, const std::string& folder);

}  // namespace gradlane
