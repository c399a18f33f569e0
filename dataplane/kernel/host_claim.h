// host_claim.h - claims to things that only one daemon of a machine may have: an interface, an address (control thread
// only)
#pragma once

#include <string>

namespace gradlane {

// Makes a claim that lasts until this process is gone, however it ends. `what` is, for example, "interface eth1". Does
// nothing if this process has the claim already. Throws SetupError, with `advice` at its end, if another process has
// it.
//
// The claim is the name of an abstract Unix socket. So it holds for the processes of one network namespace, which has
// its own interfaces and addresses. Any process that may make sockets there can claim first; the error names that
// process. The socket is never closed, because that could wait for what others have sent to it (base/shared_socket.h).
void claim_on_host(const std::string& what, const std::string& advice);

}  // namespace gradlane
