// interface.cc - the interfaces of `gradlane run` (main thread: set-up)
#include "tools/run/interface.h"

#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/parse.h"

namespace gradlane {
namespace {

constexpr double kLeastRate = 1e6;
constexpr double kMostRate = 100e9;
constexpr uint64_t kLeastBurst = 64 << 10;
constexpr uint64_t kBurstsPerSecond = 500;
constexpr uint64_t kQueuedPackets = 256;
constexpr size_t kEthernet = 14;
constexpr size_t kVlanTag = 4;
constexpr size_t kFrameSpare = 80;  // header that AF_PACKET puts before a packet, and the Ethernet header

}  // namespace

uint64_t parse_rate(const std::string& text) {
  std::string_view rest = text;
  const auto value = take_real(rest, false);
  std::string unit(rest);
  std::ranges::transform(unit, unit.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  constexpr std::array<std::pair<const char*, double>, 4> kUnits = {
      {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}}};
  for (const auto& [name, factor] : kUnits) {
    if (!value || unit != name) continue;
    if (*value * factor >= kLeastRate && *value * factor <= kMostRate) return static_cast<uint64_t>(*value * factor);
  }
  throw SetupError(fmt::format("--rate '{}': must be 1mbit to 100gbit, as in 1gbit, 200mbit, 2.5gbit", text));
}

ShaperSizes shaper_sizes(uint64_t rate, size_t mtu) {
  const uint64_t burst = std::max(kLeastBurst, rate / 8 / kBurstsPerSecond);
  return {burst, burst + kQueuedPackets * (mtu + kEthernet)};
}

std::string veth_device(size_t mtu) {
  // A frame must also fit the daemon's packet buffers, so it is not much longer than necessary. A block has whole
  // frames and whole pages.
  const size_t frame = std::max(size_t{2048}, (mtu + kFrameSpare + 15) / 16 * 16);
  const size_t block = std::lcm(frame, size_t{4096});
  return fmt::format("net_af_packet0,iface={},qdisc_bypass=0,framesz={},blocksz={}", kVethName, frame, block);
}

// A host sends at once all that its window allows, and the daemon may have to wait for a CPU. The driver's default,
// rings of 512 frames, would lose frames then.
std::string accelerator_device(unsigned number, const std::string& interface, size_t mtu) {
  constexpr size_t kRing = size_t{4} << 20;
  constexpr size_t kLeastFrames = 512;
  const size_t frame = std::max(size_t{2048}, (mtu + kFrameSpare + kVlanTag + 1023) / 1024 * 1024);
  const size_t block = std::lcm(frame, size_t{4096});
  const size_t frames = std::max(kLeastFrames, kRing / block * (block / frame));
  return fmt::format("net_af_packet{},iface={},qdisc_bypass=0,framesz={},blocksz={},framecnt={}", number, interface,
                     frame, block, frames);
}

void set_kernel(const std::string& name, const std::string& value) {
  std::ofstream file(fmt::format("/proc/sys/net/{}", name));
  file << value << '\n';
}

void turn_offloads_off(const std::string& interface) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  for (const int what : {ETHTOOL_SRXCSUM, ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO}) {
    ethtool_value value = {static_cast<uint32_t>(what), 0};
    ifreq request = {};
    interface.copy(static_cast<char*>(request.ifr_name), IFNAMSIZ - 1);
    request.ifr_data = reinterpret_cast<char*>(&value);
    if (ioctl(fd, SIOCETHTOOL, &request) == 0 || errno == EOPNOTSUPP) continue;
    const int error = errno;
    close(fd);
    throw SetupError(fmt::format("cannot turn offloads of {} off: {}", interface, std::strerror(error)));
  }
  close(fd);
}

}  // namespace gradlane
