// run_net.h - the network of `gradlane run --link veth`: a namespace per node, and one with a switch
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/run_plan.h"
#include "tools/run_warden.h"

namespace gradlane {

inline constexpr const char* kVethName = "gl0";  // of the interface in each node's namespace

// Bits per second, of what tc calls a rate: "1gbit", "200mbit", "2.5Gbit". Throws SetupError.
[[nodiscard]] uint64_t parse_rate(const std::string& text);

// Of the shaper at either end of a cable.
struct ShaperSizes {
  uint64_t burst;  // bytes that may go at once
  uint64_t limit;  // bytes that may wait; what comes then is dropped
};
[[nodiscard]] ShaperSizes shaper_sizes(uint64_t rate, size_t mtu);

// The DPDK device of a node: AF_PACKET on its interface, with frames that fit the MTU.
[[nodiscard]] std::string veth_device(size_t mtu);

// Names of the namespaces that a run of this process has: one per node, and the switch's, which is the last. None for
// links that need none.
[[nodiscard]] std::vector<std::string> run_spaces(const RunPlan& plan);
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

// Owns the namespaces and what is in them: cables from each node to a bridge, with shapers if the plan has a rate.
class RunNet {
 public:
  // `warden` hears of the programs that this starts, and removes the namespaces itself if this process is killed.
  // Throws SetupError, with what to do about it.
  RunNet(const RunPlan& plan, const RunWarden& warden);
  ~RunNet();
  RunNet(const RunNet&) = delete;
  RunNet& operator=(const RunNet&) = delete;

  // To be in when the node's daemon is started; empty where there is none.
  [[nodiscard]] std::string space(unsigned node) const { return names_.empty() ? "" : names_[node]; }

 private:
  RunNet(std::vector<std::string> names, const RunWarden& warden);  // throws if another one has them

  void add_space(const std::string& name) const;
  void add_cable(const RunPlan& plan, unsigned node) const;
  void shape(const RunPlan& plan, const std::string& interface) const;
  void keep_from_kernel(const std::string& interface) const;
  void run(const std::vector<std::string>& command, const char* hint = "") const;

  std::vector<std::string> names_;
  const RunWarden& warden_;
};

}  // namespace gradlane
