// port_hold.h - PortHold, which keeps the kernel off packets that arrive at an accelerator's interfaces (control thread
// only)
#pragma once

#include <optional>
#include <string>

#include "base/time.h"
#include "dataplane/accelerator/kernel/bypass.h"
#include "dataplane/kernel/netlink.h"

namespace gradlane {

// While this object exists, the kernel does not process packets that arrive at these interfaces. The object installs
// the tables of bypass.h, watches them, and restores them when others change them. If the process is killed, its
// sockets are closed, and the kernel removes the table `held`.
class PortHold {
 public:
  static constexpr Nanos kAgain = 5 * kSecond;  // interval between log lines that say the same

  // Throws SetupError if the kernel cannot be kept off. A missing interface is no error here: opening its port will
  // fail.
  explicit PortHold(const AcceleratorConfig& config);

  // Must be called every 100 ms.
  void look(Nanos now);

  // Returns a text that says what is wrong now, and what to do. Empty: nothing is wrong.
  [[nodiscard]] std::string fault() const;

  [[nodiscard]] bool kernel_kept_off() const noexcept { return held_; }
  [[nodiscard]] bool bypass_in_place() const noexcept { return bypassed_; }

 private:
  void hear();
  void follow_names();
  void mend(Nanos now);
  [[nodiscard]] std::string cause() const;

  const std::string file_;  // path of the configuration
  Bypass bypass_;           // has the present names of the interfaces
  // Both sockets are missing if neither port is an interface of the kernel. Such ports need no nftables.
  std::optional<NetlinkSocket> owner_;   // owns the table `held`
  std::optional<NetlinkSocket> events_;  // gets the events of all tables
  bool held_ = true;
  bool bypassed_ = true;
  int error_ = 0;  // errno of the latest attempt to restore the tables; 0 if it succeeded, or if there was none
  Nanos logged_at_ = 0;
};

}  // namespace gradlane
