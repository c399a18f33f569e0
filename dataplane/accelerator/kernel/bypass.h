// bypass.h - nftables at an accelerator's interfaces. While the accelerator runs, they keep the kernel off the packets
// that arrive. At other times, they make the kernel forward packets between the interfaces (control thread)
#pragma once

#include <string>

#include "config/accelerator.h"

namespace gradlane {

// An accelerator owns the frames that arrive at its interfaces. But its packet sockets only get copies. The kernel gets
// the frames too, and would take compressed payloads for normal data. Two tables of nftables prevent that:
//
// - `held` belongs to the process. When the process ends, in whatever way, the kernel removes the table. Nobody else
//   can remove it. It drops every packet that arrives, after the packet sockets have got their copies. PortHold creates
//   it.
// - `table` stays, and takes effect when `held` is gone. It makes the kernel forward packets between the two
//   interfaces, so that the host's network works without the accelerator. It drops compressed packets, because no
//   accelerator restores them then. If one of the ports is no interface of the kernel, nothing can be forwarded, and it
//   drops everything.
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
  // Returns whether all interfaces that have a name exist.
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
  kUnknown,  // this process has no right to read nftables
};
[[nodiscard]] BypassState bypass_state(const Bypass& bypass);

}  // namespace gradlane
