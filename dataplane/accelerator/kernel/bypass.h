// bypass.h - nftables at an accelerator's interfaces: while the accelerator runs, the kernel is kept off them; at other
// times it joins them (control thread)
#pragma once

#include <string>

#include "config/accelerator.h"

namespace gradlane {

// An accelerator owns the frames that come in at its interfaces. But its packet sockets only get copies. The kernel
// gets the frames too, and would take compressed payloads for normal data. Two tables of nftables prevent that:
//
// - `held` belongs to the process. However the process ends, the kernel then removes the table, and nobody else can
//   remove it. It drops everything that comes in, behind the packet sockets. PortHold creates it.
// - `table` stays, and takes effect when `held` is gone. It joins the two interfaces, so that the host's network works
//   without the accelerator. It drops compressed packets, because nobody is there to restore them. If one of the ports
//   is no interface of the kernel, nothing can be joined, and it drops everything.
//
// The name of `table` is "gradlane-eth1", after the interface of the wire.
struct Bypass {
  struct End {
    std::string name;    // name of the interface; empty: the port is no interface of the kernel
    unsigned index = 0;  // 0: no interface has that name
  };
  End host;
  End wire;
  uint8_t tos_wire = 0;
  std::string table;  // empty: no port is an interface of the kernel
  std::string held;

  [[nodiscard]] bool joins() const noexcept { return !host.name.empty() && !wire.name.empty(); }
  // Returns whether all its interfaces exist.
  [[nodiscard]] bool complete() const noexcept {
    return (host.name.empty() || host.index != 0) && (wire.name.empty() || wire.index != 0);
  }
  // Returns a text like "eth1 and gla0".
  [[nodiscard]] std::string ends() const;
};

// Returns the bypass in this network namespace, with the interfaces as they are now.
[[nodiscard]] Bypass bypass_of(const AcceleratorConfig& config);

// Installs `table`, and replaces any content that it has. Throws SetupError.
void install_bypass(const Bypass& bypass);
void remove_bypass(const Bypass& bypass);

enum class BypassState {
  kInPlace,
  kMissing,  // the table is missing, or not as install_bypass() makes it now
  kUnknown,  // this process has no right to look
};
[[nodiscard]] BypassState bypass_state(const Bypass& bypass);

}  // namespace gradlane
