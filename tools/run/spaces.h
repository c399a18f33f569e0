// spaces.h - network namespaces of `gradlane run`: their names, being in one, removing them
#pragma once

#include <string>
#include <vector>

#include "tools/run/plan.h"

namespace gradlane {

// Names of the namespaces that a run of this process has: one per node, and the switch's, which is the last. None for
// links that need none.
[[nodiscard]] std::vector<std::string> run_spaces(const RunPlan& plan);
// Throws SetupError if another one has these names.
void require_new_spaces(const std::vector<std::string>& names);
// What still runs in them keeps its interfaces until it ends. Missing ones are no fault.
void remove_spaces(const std::vector<std::string>& names) noexcept;

// This process is in that network namespace as long as the object lives, and what it starts in that time stays there.
class InSpace {
 public:
  // Empty: it stays where it is. Throws SetupError.
  explicit InSpace(const std::string& name);
  ~InSpace();
  InSpace(const InSpace&) = delete;
  InSpace& operator=(const InSpace&) = delete;

 private:
  int before_ = -1;
};

}  // namespace gradlane
