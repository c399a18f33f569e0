// net.h - the network of `gradlane run --link veth`, udp and accelerator: a namespace per node, and one with a switch
// (main thread: set-up and end)
#pragma once

#include <string>
#include <vector>

#include "tools/run/cleanup_guard.h"
#include "tools/run/settings.h"

namespace gradlane {

// Owns the namespaces and their contents: a veth pair from each node to a bridge, with shapers if RunSettings::rate is
// set.
class RunNet {
 public:
  // `cleanup_guard` is informed of the programs that this object starts. Its process removes the namespaces if this
  // process is killed. Throws SetupError that says what to do.
  RunNet(const RunSettings& plan, const CleanupGuard& cleanup_guard);
  ~RunNet();
  RunNet(const RunNet&) = delete;
  RunNet& operator=(const RunNet&) = delete;

  // Returns the names of the nodes' namespaces, and the name of the switch's as the last one.
  [[nodiscard]] const std::vector<std::string>& spaces() const noexcept { return names_; }
  // Returns the namespace in which the node's daemon must be started. It is empty if nodes have none.
  [[nodiscard]] std::string space(unsigned node) const { return names_.empty() ? "" : names_[node]; }

 private:
  // Throws SetupError if there are namespaces with these names already.
  RunNet(std::vector<std::string> names, const RunSettings& plan, const CleanupGuard& cleanup_guard);

  void add_space(const std::string& name) const;
  void add_cable(unsigned node, const std::string& port, const std::string& end) const;
  void finish_cable(const std::string& end) const;
  void add_address(unsigned node) const;
  void add_kernel_network(unsigned node) const;
  void shape(const std::string& interface) const;
  void keep_from_kernel(const std::string& interface) const;
  void drop_input(const std::string& interface) const;
  // Sets up a host for --link accelerator; in net_accelerator.cc.
  void add_host(unsigned node) const;

  void run(const std::vector<std::string>& command, const std::string& hint = "") const;
  [[nodiscard]] std::string find_tool(const std::string& name) const;

  std::vector<std::string> names_;
  const RunSettings& plan_;
  const CleanupGuard& cleanup_guard_;
};

}  // namespace gradlane
