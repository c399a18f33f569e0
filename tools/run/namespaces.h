// namespaces.h - the network namespaces of `gradlane run`: names, entering and removal (main thread: set-up and end;
// removal: the process of CleanupGuard, too)
#pragma once

#include <string>
#include <vector>

#include "tools/run/settings.h"

namespace gradlane {

// Returns the names of the namespaces for a run of this process: one per node, and the switch's as the last one.
// Returns none if the kind of link needs no namespaces.
[[nodiscard]] std::vector<std::string> run_namespaces(const RunSettings& plan);
// Throws SetupError if there are namespaces with these names already.
void require_new_spaces(const std::vector<std::string>& names);
// Removes namespaces. A process that still runs in one keeps its interfaces until it ends. Missing namespaces are no
// error.
void remove_spaces(const std::vector<std::string>& names) noexcept;

// Puts this process into a network namespace as long as the object lives. Processes that are started in that time stay
// there.
class InNetworkNamespace {
 public:
  // If `name` is empty, the process stays in its namespace. Throws SetupError.
  explicit InNetworkNamespace(const std::string& name);
  ~InNetworkNamespace();
  InNetworkNamespace(const InNetworkNamespace&) = delete;
  InNetworkNamespace& operator=(const InNetworkNamespace&) = delete;

 private:
  int before_ = -1;
};

}  // namespace gradlane
