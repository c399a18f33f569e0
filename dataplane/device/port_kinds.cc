// port_kinds.cc - facts about DPDK's drivers, and the socket files of some (control thread only)
#include "dataplane/device/port_kinds.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/parse.h"
#include "config/devargs.h"
#include "config/values.h"

namespace gradlane {
namespace {

constexpr size_t kLongestFrame = 32768;  // longest frame of AF_PACKET
// Limits of the buffers of Intel's older cards (e1000, e1000e), and the bytes of a buffer outside the IP packet. The
// cards round a buffer size down to a power of two. They treat 5 KiB as 4 KiB, and spread a packet of 5 KiB over two
// buffers.
constexpr size_t kSmallestBuffer = 2048;
constexpr size_t kLargestBuffer = 16384;
constexpr size_t kBesidePacket = 26;
// A descriptor of vmxnet3 has 14 bits for the length. A buffer of 16384 bytes would count as empty, and nothing would
// arrive. The card's own MTU, 9000 at most, needs less.
constexpr size_t kMostOfVmxnet3 = 16383;
constexpr size_t kPortBuffers = 2 * 512 + 128;
// Buffers of an AF_XDP device. With zero-copy, the pool is its umem: they are in its fill ring, or wait in the kernel
// to be sent.
constexpr size_t kXdpBuffers = 2 * 2048 + 128;

DeviceTraits memif_traits(const std::string& devargs) {
  DeviceTraits traits;
  traits.local = traits.needs_goodbye = traits.never_closed = true;
  const bool server = devargs_value(devargs, "role") == "server";
  traits.reconnects = !server;
  // Abstract sockets, which are the default, have no file.
  if (server && devargs_value(devargs, "socket-abstract") == "no") traits.socket = devargs_value(devargs, "socket");
  return traits;
}

DeviceTraits virtio_traits(const std::string& devargs) {
  DeviceTraits traits;
  traits.wants_mtu = traits.needs_mac = traits.never_closed = true;
  const std::string path = devargs_value(devargs, "path");
  // /dev/vhost-net is the kernel, and /dev/vhost-vdpa-0 is a card.
  if (path.starts_with("/dev/vhost")) return traits;
  traits.local = true;
  if (devargs_value(devargs, "server") != "1") return traits;
  traits.blocks = true;
  traits.socket = path;
  return traits;
}

DeviceTraits vhost_traits(const std::string& devargs) {
  DeviceTraits traits;
  traits.local = traits.needs_mac = traits.never_closed = true;
  if (devargs_value(devargs, "client") != "1") traits.socket = devargs_value(devargs, "iface");
  return traits;
}

}  // namespace

DeviceTraits traits_of(const PortConfig& config) {
  DeviceTraits traits;
  if (config.kind == PortConfig::Kind::kPci) traits.wants_mtu = true;
  if (config.kind == PortConfig::Kind::kRing) traits.local = traits.shares_buffers = true;
  if (config.kind == PortConfig::Kind::kUdp) traits.kernel = traits.sockets = true;
  if (config.kind != PortConfig::Kind::kDevice) return traits;
  if (is_memif(config)) return memif_traits(config.device);
  if (is_virtio(config)) return virtio_traits(config.device);
  if (is_vhost(config)) return vhost_traits(config.device);
  traits.stalls_on_long_frame = is_af_packet(config);
  traits.kernel = is_af_packet(config) || is_af_xdp(config) || is_tap(config);
  return traits;
}

size_t buffers_in(const PortConfig& port) {
  const size_t buffers = is_af_xdp(port) ? kXdpBuffers : kPortBuffers;
  return buffers + (is_virtio(port) ? 2 * parse_whole(devargs_value(port.device, "queue_size")).value_or(0) : 0);
}

size_t longest_packet(std::span<const PortConfig> ports, size_t mtu, bool (&powers)(const PortConfig&)) {
  size_t longest = mtu;
  for (const PortConfig& port : ports) {
    if (powers(port)) {
      const size_t buffer = std::clamp(std::bit_ceil(mtu + kBesidePacket), kSmallestBuffer, kLargestBuffer);
      longest = std::max(longest, buffer - kBesidePacket);
    }
    if (!is_af_packet(port)) continue;
    const size_t frame = parse_whole(devargs_value(port.device, "framesz")).value_or(0);
    longest = std::max(longest, std::min(frame, kLongestFrame));
  }
  return longest;
}

void check_room(std::string_view driver, size_t room) {
  if (driver != "net_vmxnet3" || room <= kMostOfVmxnet3) return;
  throw SetupError(
      "the device takes buffers of at most " + std::to_string(kMostOfVmxnet3) + " bytes, but other ports need " +
      std::to_string(room) + ", and all ports share the buffers: with e1000 and e1000e set mtu to " +
      std::to_string(kLargestBuffer / 2 - kBesidePacket) + " at most, with AF_PACKET set framesz=12288,blocksz=12288");
}

void check_frames(const std::string& devargs, size_t frame) {
  if (!devargs.starts_with("net_memif")) return;
  const std::string text = devargs_value(devargs, "bsize");
  const auto number = text.empty() ? std::optional<uint64_t>(2048) : parse_decimal(text);
  if (!number) throw SetupError("bsize=" + text + " is not a whole number: set bsize=9216 on both sides");
  const uint64_t bsize = *number;
  if (bsize < frame) {
    throw SetupError("bsize is " + std::to_string(bsize) + ", but frames have up to " + std::to_string(frame) +
                     " bytes: set bsize=9216 on both sides");
  }
}

MacAddress mac_of(uint32_t ip) noexcept {
  const auto byte = [ip](unsigned shift) { return static_cast<uint8_t>(ip >> shift); };
  return {0x02, 0x67, byte(24), byte(16), byte(8), byte(0)};
}

// ---- Socket files

void remove_socket(const std::string& path) noexcept {
  struct stat status {};
  if (!path.empty() && lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) unlink(path.c_str());
}

void check_socket(const std::string& path) {
  if (path.empty()) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    throw SetupError("socket '" + path + "': at most " + std::to_string(sizeof(address.sun_path) - 1) + " bytes");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool made = fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!made) throw SetupError("socket '" + path + "': " + std::strerror(error));
  unlink(path.c_str());
}

}  // namespace gradlane
