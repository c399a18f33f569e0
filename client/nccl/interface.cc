// interface.cc - the network interface of point-to-point connections (any thread)
#include "client/nccl/interface.h"

#include <ifaddrs.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "client/nccl/log.h"

namespace gradlane::nccl {
namespace {

constexpr int kDefaultSpeed = 10'000;  // Mb/s, as NCCL's sockets assume

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Interface found;  // set while `mutex` is held, and constant once `is_found`
bool is_found = false;

bool starts_with(const char* text, const char* prefix, size_t bytes) {
  return std::strlen(text) >= bytes && std::memcmp(text, prefix, bytes) == 0;
}

// Returns whether the list in NCCL_SOCKET_IFNAME has the name: "eth,ib" are prefixes, "=eth0,eth1" names, and "^"
// before either excludes them.
bool is_named(const char* list, const char* name) {
  const bool excludes = *list == '^';
  if (excludes) ++list;
  const bool is_exact = *list == '=';
  if (is_exact) ++list;
  while (*list != '\0') {
    const size_t bytes = std::strcspn(list, ",");
    const size_t name_bytes = std::strcspn(list, ",:");  // a port may follow
    if (name_bytes != 0 && starts_with(name, list, name_bytes) && (!is_exact || std::strlen(name) == name_bytes))
      return !excludes;
    list += bytes;
    if (*list == ',') ++list;
  }
  return excludes;
}

int preference(const char* name) {
  if (starts_with(name, "virbr", 5)) return 1;
  if (starts_with(name, "lo", 2)) return 2;
  if (starts_with(name, "docker", 6)) return 3;
  return starts_with(name, "ib", 2) ? 5 : 4;
}

bool can_use(const ifaddrs& it) {
  if (it.ifa_addr == nullptr || (it.ifa_flags & IFF_UP) == 0 || (it.ifa_flags & IFF_RUNNING) == 0) return false;
  const int family = it.ifa_addr->sa_family;
  if (family != AF_INET && family != AF_INET6) return false;
  const char* const wanted = getenv("NCCL_SOCKET_FAMILY");
  if (wanted != nullptr && std::strcmp(wanted, family == AF_INET ? "AF_INET6" : "AF_INET") == 0) return false;
  if (family == AF_INET) return true;
  Address address{};
  std::memcpy(&address.v6, it.ifa_addr, sizeof(address.v6));
  return !IN6_IS_ADDR_LINKLOCAL(&address.v6.sin6_addr);
}

int read_speed(const char* name) {
  char path[64 + IFNAMSIZ];
  (void)snprintf(path, sizeof(path), "/sys/class/net/%s/speed", name);
  int speed = 0;
  if (FILE* const file = fopen(path, "re"); file != nullptr) {
    if (fscanf(file, "%d", &speed) != 1) speed = 0;
    (void)fclose(file);
  }
  return speed > 0 ? speed : kDefaultSpeed;
}

void describe(const ifaddrs& it) {
  found = Interface{};
  (void)snprintf(found.name, sizeof(found.name), "%s", it.ifa_name);
  const bool is_v6 = it.ifa_addr->sa_family == AF_INET6;
  std::memcpy(&found.address, it.ifa_addr, is_v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  found.speed = read_speed(found.name);
  char path[64 + IFNAMSIZ];
  (void)snprintf(path, sizeof(path), "/sys/class/net/%s/device", found.name);
  if (realpath(path, found.pci_path) == nullptr) found.pci_path[0] = '\0';
}

bool search() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return false;
  const char* const list = getenv("NCCL_SOCKET_IFNAME");
  const bool has_list = list != nullptr && *list != '\0';
  const ifaddrs* best = nullptr;
  for (const ifaddrs* it = all; it != nullptr; it = it->ifa_next) {
    if (!can_use(*it) || (has_list && !is_named(list, it->ifa_name))) continue;
    if (best == nullptr || preference(it->ifa_name) > preference(best->ifa_name)) best = it;
  }
  if (best != nullptr) describe(*best);
  freeifaddrs(all);
  return best != nullptr;
}

}  // namespace

const Interface* find_interface() {
  pthread_mutex_lock(&mutex);
  if (!is_found) {
    is_found = search();
    if (is_found) log(kInfo, "connections between two nodes use interface %s", found.name);
  }
  const bool is_there = is_found;
  pthread_mutex_unlock(&mutex);
  return is_there ? &found : nullptr;
}

}  // namespace gradlane::nccl
