// port_hold.h - the kernel is kept off what comes in at an accelerator's interfaces (control thread only)
#pragma once

#include <optional>
#include <string>

#include "base/time.h"
#include "dataplane/accelerator/kernel/bypass.h"
#include "dataplane/kernel/netlink.h"

namespace gradlane {

// As long as this lives, the kernel takes nothing that comes in there: it has the tables of bypass.h, watches them, and
// mends what others do to them. A process that is killed loses the first one with its sockets.
class PortHold {
 public:
  static constexpr Nanos kAgain = 5 * kSecond;  // between lines that say the same

  // Throws SetupError if the kernel cannot be kept off; an interface that is missing is left to whoever opens it.
  explicit PortHold(const AcceleratorConfig& config);

  // Every 100 ms.
  void look(Nanos now);

  // What is wrong now, and what to do; empty: nothing.
  [[nodiscard]] std::string fault() const;

  [[nodiscard]] bool kernel_kept_off() const noexcept { return held_; }
  [[nodiscard]] bool bypass_in_place() const noexcept { return bypassed_; }

 private:
  void hear();
  void follow_names();
  void mend(Nanos now);
  [[nodiscard]] std::string cause() const;

  const std::string file_;  // of the configuration
  Bypass bypass_;           // with the names that interfaces have now
  // None if both ports are DPDK's alone: kernels without nftables do for those.
  std::optional<NetlinkSocket> owner_;   // of the table `held`
  std::optional<NetlinkSocket> events_;  // of tables
  bool held_ = true;
  bool bypassed_ = true;
  int error_ = 0;  // why the last attempt to mend failed
  Nanos logged_at_ = 0;
};

}  // namespace gradlane
