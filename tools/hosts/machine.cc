// machine.cc - this machine's addresses, and look-up of host names (set-up only)
#include "tools/hosts/machine.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "base/socket_folders.h"

namespace gradlane {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr std::chrono::seconds kLookUpPatience{5};

// Returns the IP address; nothing if `address` is of another kind.
std::optional<IpAddress> ip_of(const sockaddr* address) {
  if (address == nullptr) return std::nullopt;
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address->sa_family == AF_INET) {
    sockaddr_in ipv4{};
    std::memcpy(&ipv4, address, sizeof(ipv4));
    (void)inet_ntop(AF_INET, &ipv4.sin_addr, text.data(), text.size());
  } else if (address->sa_family == AF_INET6) {
    sockaddr_in6 ipv6{};
    std::memcpy(&ipv6, address, sizeof(ipv6));
    (void)inet_ntop(AF_INET6, &ipv6.sin6_addr, text.data(), text.size());
  }
  return parse_address(text.data());
}

size_t mtu_of_interface(int fd, const char* name) {
  ifreq request{};
  std::strncpy(request.ifr_name, name, sizeof(request.ifr_name) - 1);
  return ioctl(fd, SIOCGIFMTU, &request) == 0 && request.ifr_mtu > 0 ? static_cast<size_t>(request.ifr_mtu) : 0;
}

// Look-ups that run at the same time, in threads of the C library. If some are still running when the time is up, they
// go on writing to this object. After a failed start some may run, too. The object must not be freed in these two
// cases.
struct LookUps {
  std::vector<std::string> names;
  addrinfo hints{};
  std::vector<gaicb> requests;
  std::vector<gaicb*> list;

  explicit LookUps(std::vector<std::string> all) : names(std::move(all)), requests(names.size()) {
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_DGRAM;
    for (size_t i = 0; i < names.size(); ++i) {
      requests[i] = {};
      requests[i].ar_name = names[i].c_str();
      requests[i].ar_request = &hints;
      list.push_back(&requests[i]);
    }
  }

  // Returns false if not all look-ups were started. Some may run then.
  [[nodiscard]] bool start() {
    return list.empty() || getaddrinfo_a(GAI_NOWAIT, list.data(), static_cast<int>(list.size()), nullptr) == 0;
  }

  // Returns false if some look-ups have not ended in time.
  [[nodiscard]] bool wait() {
    const auto end = Clock::now() + kLookUpPatience;
    for (gaicb* const it : list) {
      while (gai_error(it) == EAI_INPROGRESS) {
        const auto left = std::chrono::duration_cast<nanoseconds>(end - Clock::now()).count();
        if (left <= 0) return false;
        const timespec most{left / 1'000'000'000, left % 1'000'000'000};
        const gaicb* const one[] = {it};
        (void)gai_suspend(one, 1, &most);
      }
    }
    return true;
  }
};

std::vector<IpAddress> ips_of(const gaicb& request) {
  std::vector<IpAddress> ips;
  for (const addrinfo* it = request.ar_result; it != nullptr; it = it->ai_next) {
    if (const auto ip = ip_of(it->ai_addr)) ips.push_back(*ip);
  }
  if (request.ar_result != nullptr) freeaddrinfo(request.ar_result);
  return ips;
}

}  // namespace

std::vector<LocalIp> local_ips() {
  std::vector<LocalIp> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  const FileDescriptor fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  for (const ifaddrs* it = all; it != nullptr; it = it->ifa_next) {
    if (const auto ip = ip_of(it->ifa_addr)) {
      found.push_back({*ip, it->ifa_name, mtu_of_interface(fd.get(), it->ifa_name)});
    }
  }
  freeifaddrs(all);
  return found;
}

std::vector<FoundHost> look_up(const std::vector<Host>& hosts, const std::string& where) {
  std::vector<FoundHost> found;
  std::vector<std::string> names;
  for (const Host& host : hosts) {
    found.push_back({host, {}});
    if (const auto ip = parse_address(host.name)) {
      found.back().ips.push_back(*ip);
    } else {
      names.push_back(host.name);
    }
  }
  auto all = std::make_unique<LookUps>(std::move(names));
  if (!all->start()) {
    (void)all.release();
    throw SetupError("cannot look names up: out of memory or threads");
  }
  const bool ended = all->wait();
  std::vector<std::string> faults;
  size_t next = 0;
  for (FoundHost& host : found) {
    if (!host.ips.empty()) continue;
    gaicb& request = all->requests[next++];
    const int error = gai_error(&request);
    if (error == 0) host.ips = ips_of(request);
    if (!host.ips.empty()) continue;
    const char* const why = error == EAI_INPROGRESS ? "no answer within 5 s" : gai_strerror(error);
    faults.push_back(fmt::format("{} ({})", host.host.name, error == 0 ? "no address" : why));
  }
  if (!ended) (void)all.release();
  if (faults.empty()) return found;
  const size_t more = faults.size() - std::min<size_t>(faults.size(), 8);
  faults.resize(faults.size() - more);
  throw SetupError(fmt::format("{}: cannot find {}{}: write addresses, or add the names to /etc/hosts or DNS", where,
                               fmt::join(faults, ", "), more == 0 ? "" : fmt::format(" and {} more", more)));
}

Environment environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* const value = std::getenv(name);
    return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
  };
}

HostQueries queries() {
  const auto find = [](const std::vector<Host>& hosts) { return look_up(hosts, "--nodes"); };
  return {find, local_ips, environment(), geteuid(), can_hold_sockets};
}

}  // namespace gradlane
