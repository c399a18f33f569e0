// host_claim.h - what only one daemon of a machine may have: an interface, an address (control thread only)
#pragma once

#include <string>

#include "base/file_descriptor.h"

namespace gradlane {

// Taken until this is gone, however the process ends. What is taken is known to the processes of one network namespace,
// which has interfaces and addresses of its own: it is the name of an abstract Unix socket. Whoever may make sockets
// there can take it first; the error names that process.
class HostClaim {
 public:
  // `what`: "interface eth1". Nothing happens if this process has it already. Throws SetupError, with `advice` at its
  // end, if another one has.
  HostClaim(const std::string& what, const std::string& advice);

 private:
  FileDescriptor socket_;
};

}  // namespace gradlane
