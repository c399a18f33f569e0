// net.h - the network of `gradlane run --link veth` and accelerator: a namespace per node, and one with a switch
#pragma once

#include <string>
#include <vector>

#include "tools/run/plan.h"
#include "tools/run/warden.h"

namespace gradlane {

// Owns the namespaces and what is in them: cables from each node to a bridge, with shapers if the plan has a rate.
class RunNet {
 public:
  // `warden` hears of the programs that this starts, and removes the namespaces itself if this process is killed.
  // Throws SetupError, with what to do about it.
  RunNet(const RunPlan& plan, const RunWarden& warden);
  ~RunNet();
  RunNet(const RunNet&) = delete;
  RunNet& operator=(const RunNet&) = delete;

  // Of the nodes, and the switch's, which is the last.
  [[nodiscard]] const std::vector<std::string>& spaces() const noexcept { return names_; }
  // To be in when the node's daemon is started; empty where there is none.
  [[nodiscard]] std::string space(unsigned node) const { return names_.empty() ? "" : names_[node]; }

 private:
  // Throws if another one has these names.
  RunNet(std::vector<std::string> names, const RunPlan& plan, const RunWarden& warden);

  void add_space(const std::string& name) const;
  void add_cable(unsigned node, const std::string& port, const std::string& end) const;
  void finish_cable(const std::string& end) const;
  void add_address(unsigned node) const;
  void add_kernel_network(unsigned node) const;
  void shape(const std::string& interface) const;
  void keep_from_kernel(const std::string& interface) const;
  void drop_input(const std::string& interface) const;
  // --link accelerator: run_net_accelerator.cc
  void add_host(unsigned node) const;

  void run(const std::vector<std::string>& command, const std::string& hint = "") const;
  [[nodiscard]] std::string find_tool(const std::string& name) const;

  std::vector<std::string> names_;
  const RunPlan& plan_;
  const RunWarden& warden_;
};

}  // namespace gradlane
