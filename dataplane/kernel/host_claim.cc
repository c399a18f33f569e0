// host_claim.cc - claims as names of abstract sockets (control thread only)
#include "dataplane/kernel/host_claim.h"

#include <spdlog/fmt/fmt.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/error.h"
#include "base/file_descriptor.h"

namespace gradlane {
namespace {

// The number of connections that may wait at the socket of a claim. Daemons whose own claim has failed connect, to find
// the process that has it. Nobody accepts these connections.
constexpr int kAskers = 4096;

int make_socket() noexcept { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

// Returns the process that listens at this address; 0 if it cannot be found out.
pid_t owner_of_socket(const sockaddr_un& address, socklen_t bytes) {
  FileDescriptor fd(make_socket());
  ucred owner{};
  socklen_t size = sizeof(owner);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) return 0;
  const bool known = getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &owner, &size) == 0;
  fd.leave_open();  // any process may have the name, and send what makes close() wait
  return known ? owner.pid : 0;
}

}  // namespace

void claim_on_host(const std::string& what, const std::string& advice) {
  FileDescriptor fd(make_socket());
  const std::string name = "gradlane " + what;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (!fd) throw SetupError(std::string("cannot make a Unix socket: ") + std::strerror(errno));
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0) {
    if (listen(fd.get(), kAskers) == 0) return fd.leave_open();
    throw SetupError(fmt::format("cannot claim {}: {}", what, std::strerror(errno)));
  }
  if (errno != EADDRINUSE) throw SetupError(fmt::format("cannot claim {}: {}", what, std::strerror(errno)));
  const pid_t owner = owner_of_socket(address, bytes);
  if (owner == getpid()) return;
  const std::string who = owner == 0 ? "" : fmt::format(", process {},", owner);
  throw SetupError(fmt::format("another gradlaned on this machine{} uses {}: {}", who, what, advice));
}

}  // namespace gradlane
