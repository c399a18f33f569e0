// xdp.h - the XDP program that DPDK's AF_XDP device puts on an interface, and messages of its libraries (control thread
// only)
#pragma once

#include <string>

#include "base/file_descriptor.h"

namespace gradlane {

// Prepares libbpf and libxdp, which DPDK's driver loads; call it before the first AF_XDP device is made. The libraries
// then send their messages to take_xdp_messages() instead of standard error. They put a single program on the
// interface, without files in bpffs.
void prepare_xdp();

// Returns the messages since the last call, line by line.
[[nodiscard]] std::string take_xdp_messages();

// Keeps the XDP program on the interface as long as the returned descriptor is open. So the program is removed when
// this process ends, however it ends and whichever user it runs as. Returns nothing if the kernel is older than 5.9, or
// if there is no program. Then nothing has changed, and the removal of a program needs CAP_NET_ADMIN.
[[nodiscard]] FileDescriptor keep_xdp_program(unsigned interface);

}  // namespace gradlane
