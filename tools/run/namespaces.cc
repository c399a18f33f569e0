// namespaces.cc - network namespaces of `gradlane run` (main thread: set-up and end; removal: the process of
// CleanupGuard, too)
#include "tools/run/namespaces.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>

#include "base/error.h"

namespace gradlane {
namespace {

constexpr const char* kNetnsFolder = "/run/netns/";  // folder where `ip netns` keeps names

}  // namespace

std::vector<std::string> run_namespaces(const RunSettings& plan) {
  std::vector<std::string> names;
  if (!plan.has_namespaces()) return names;
  for (unsigned i = 0; i < plan.nodes; ++i) names.push_back(fmt::format("gradlane-{}-n{}", getpid(), i));
  names.push_back(fmt::format("gradlane-{}-sw", getpid()));
  return names;
}

void require_new_spaces(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (access((kNetnsFolder + name).c_str(), F_OK) != 0) continue;
    throw SetupError(fmt::format("the network namespace {} already exists: 'ip netns del {}' removes it", name, name));
  }
}

// Removes the namespaces, as `ip netns del` does.
void remove_spaces(const std::vector<std::string>& names) noexcept {
  for (const std::string& name : names) {
    const std::string path = kNetnsFolder + name;
    (void)umount2(path.c_str(), MNT_DETACH);
    (void)unlink(path.c_str());
  }
}

InNetworkNamespace::InNetworkNamespace(const std::string& name) {
  if (name.empty()) return;
  before_ = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  const int there = open((kNetnsFolder + name).c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = before_ >= 0 && there >= 0 && setns(there, CLONE_NEWNET) == 0;
  const int error = errno;
  if (there >= 0) close(there);
  if (entered) return;
  if (before_ >= 0) close(before_);
  throw SetupError(fmt::format("cannot enter the network namespace {}: {}", name, std::strerror(error)));
}

InNetworkNamespace::~InNetworkNamespace() {
  if (before_ < 0) return;
  // The process must not go on in the wrong namespace. If it dies here, CleanupGuard's process cleans up.
  if (setns(before_, CLONE_NEWNET) != 0) std::terminate();
  close(before_);
}

}  // namespace gradlane
