// bypass.h - what the kernel does at an accelerator's interfaces: nothing while it runs; without it, join them (control
// thread)
#pragma once

#include <string>

#include "config/accelerator.h"

namespace gradlane {

// Frames that come in at the interfaces of an accelerator are its own: its packet sockets see them beside the kernel,
// not instead of it, and the kernel would take what is compressed for data. Two tables of nftables see to that:
//
// - `held` goes with the process, however that ends, and nobody else can remove it. It drops all that comes in, behind
//   the packet sockets (PortHold has it).
// - `table` stays, and has its turn when the first one is gone. It joins the two interfaces, so that the host's network
//   goes on past the accelerator that is not there, but for compressed packets, which nobody is there to restore. If
//   one of the ports is no interface of the kernel, nothing can be joined, and it drops all.
//
// In names, `table` is "gradlane-eth1", after the interface of the wire.
struct Bypass {
  struct End {
    std::string name;    // of the interface; empty: the port is none of the kernel
    unsigned index = 0;  // 0: there is none of that name
  };
  End host;
  End wire;
  uint8_t tos_wire = 0;
  std::string table;  // empty: no port is an interface of the kernel
  std::string held;

  [[nodiscard]] bool joins() const noexcept { return !host.name.empty() && !wire.name.empty(); }
  // All its interfaces are there.
  [[nodiscard]] bool complete() const noexcept {
    return (host.name.empty() || host.index != 0) && (wire.name.empty() || wire.index != 0);
  }
  // "eth1 and gla0".
  [[nodiscard]] std::string ends() const;
};

// In this network namespace, as it is now.
[[nodiscard]] Bypass bypass_of(const AcceleratorConfig& config);

// `table`. Throws SetupError. Whatever was in it is replaced.
void install_bypass(const Bypass& bypass);
void remove_bypass(const Bypass& bypass);

enum class BypassState {
  kInPlace,
  kMissing,  // or other than install_bypass() makes it now
  kUnknown,  // this process may not look
};
[[nodiscard]] BypassState bypass_state(const Bypass& bypass);

}  // namespace gradlane
