// host_claim.h - claims to things that only one daemon of a machine may have: an interface, an address (control thread
// only)
#pragma once

#include <string>

#include "base/file_descriptor.h"

namespace gradlane {

// A claim that lasts until this object or the process is gone, however the process ends. It is the name of an abstract
// Unix socket. So it holds for the processes of one network namespace, which has its own interfaces and addresses. Any
// process that may make sockets there can claim first; the error names that process.
class HostClaim {
 public:
  // `what` is, for example, "interface eth1". Does nothing if this process has the claim already. Throws SetupError,
  // with `advice` at its end, if another process has it.
  HostClaim(const std::string& what, const std::string& advice);

 private:
  FileDescriptor socket_;
};

}  // namespace gradlane
