// xdp.h - the XDP program that DPDK's AF_XDP device puts on an interface, and what its libraries say (control thread
// only)
#pragma once

#include <string>

#include "base/file_descriptor.h"

namespace gradlane {

// Before the first AF_XDP device is made: libbpf and libxdp, which DPDK's driver brings along, tell us instead of
// standard error, and put one program on the interface, without files in bpffs.
void prepare_xdp();

// What they have said since this was last asked, line by line.
[[nodiscard]] std::string take_xdp_messages();

// The program on the interface stays as long as what is returned is open, and goes with this process, whatever becomes
// of that and whoever it is then. Nothing: this kernel, before 5.9, cannot do that, or there is no program; all is as
// it was then, and needs CAP_NET_ADMIN to be taken off.
[[nodiscard]] FileDescriptor keep_xdp_program(unsigned interface);

}  // namespace gradlane
