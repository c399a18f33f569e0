// packet_socket.cc - the packet socket inside DPDK's AF_PACKET device (control thread; push_ring(): worker)
#include "dataplane/device/packet_socket.h"

#include <dirent.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace {

std::atomic<unsigned> without_fanout{0};  // number of WithoutFanout objects

}  // namespace

// Replaces libc's setsockopt(); DPDK's drivers call this one.
extern "C" __attribute__((visibility("default"))) int setsockopt(int socket, int level, int name, const void* value,
                                                                 socklen_t bytes) noexcept {
  if (level == SOL_PACKET && name == PACKET_FANOUT && without_fanout.load(std::memory_order_relaxed) != 0) return 0;
  return static_cast<int>(syscall(SYS_setsockopt, socket, level, name, value, bytes));
}

namespace gradlane {

WithoutFanout::WithoutFanout() noexcept { without_fanout.fetch_add(1, std::memory_order_relaxed); }
WithoutFanout::~WithoutFanout() { without_fanout.fetch_sub(1, std::memory_order_relaxed); }

int find_packet_socket(unsigned interface) noexcept {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  int found = -1;
  while (const dirent* const entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    sockaddr_ll address{};
    socklen_t bytes = sizeof(address);
    if (entry->d_name[0] == '.' || getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) continue;
    const bool ours = address.sll_family == AF_PACKET && address.sll_ifindex == static_cast<int>(interface);
    if (ours && address.sll_protocol == htons(ETH_P_ALL)) found = fd;
  }
  closedir(folder);
  return found;
}

bool ignore_outgoing(int socket) noexcept {
  const int yes = 1;
  return setsockopt(socket, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof(yes)) == 0;
}

bool reassembles(int socket) noexcept {
  uint32_t fanout = 0;
  socklen_t bytes = sizeof(fanout);
  if (getsockopt(socket, SOL_PACKET, PACKET_FANOUT, &fanout, &bytes) != 0) return false;
  return (fanout >> 16 & PACKET_FANOUT_FLAG_DEFRAG) != 0;
}

uint64_t take_missed(int socket) noexcept {
  tpacket_stats figures{};
  socklen_t bytes = sizeof(figures);
  return getsockopt(socket, SOL_PACKET, PACKET_STATISTICS, &figures, &bytes) == 0 ? figures.tp_drops : 0;
}

bool push_ring(int socket) noexcept {
  // sendto() returns 0 if the ring was empty. The first call may have sent all frames, so a second one asks again.
  return sendto(socket, nullptr, 0, MSG_DONTWAIT, nullptr, 0) == 0 ||
         sendto(socket, nullptr, 0, MSG_DONTWAIT, nullptr, 0) == 0;
}

}  // namespace gradlane
