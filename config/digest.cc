// digest.cc - the settings that neighbours compare (set-up only)
#include "config/addresses.h"
#include "config/loader.h"

namespace gradlane {
namespace {

// A hash: 64-bit FNV-1a.
class Digest {
 public:
  void add(uint32_t value) noexcept {
    for (int shift = 0; shift < 32; shift += 8) {
      state_ = (state_ ^ (value >> shift & 0xff)) * 0x100000001b3;
    }
  }
  void add(const NodeConfig& config, const NodeAddress& node) noexcept {
    add(node.rank);
    add(node.ip);
    if (!needs_sockets(config)) return;
    const IpAddress address = address_of(node);
    for (size_t i = 0; i < address.size(); i += 4) {
      add(uint32_t{address[i]} << 24 | uint32_t{address[i + 1]} << 16 | uint32_t{address[i + 2]} << 8 | address[i + 3]);
    }
    add(udp_port_of(config, node));
  }
  [[nodiscard]] uint64_t value() const noexcept { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace

RingSettings ring_settings(const NodeConfig& config) {
  Digest addresses;
  for (const NodeAddress& node : config.nodes) addresses.add(config, node);
  RingSettings settings;
  settings.nodes = static_cast<uint16_t>(config.nodes.size());
  settings.trainers = static_cast<uint16_t>(config.trainers);
  settings.lanes = static_cast<uint16_t>(config.lanes);
  settings.udp_port = config.udp_port;
  settings.tos_compressed = config.tos_compressed;
  settings.tos_raw = config.tos_raw;
  settings.tos_control = config.tos_control;
  settings.local_reduce = config.local_reduce ? 1 : 0;
  settings.addresses = static_cast<uint32_t>(addresses.value() ^ addresses.value() >> 32);
  return settings;
}

uint64_t rank_table_digest(const NodeConfig& config) {
  Digest digest;
  digest.add(static_cast<uint32_t>(config.nodes.size()));
  for (const NodeAddress& node : config.nodes) digest.add(config, node);
  digest.add(config.trainers);
  digest.add(config.local_reduce ? 1 : 0);
  digest.add(config.lanes);
  digest.add(config.udp_port);
  digest.add(uint32_t{config.tos_compressed} << 16 | uint32_t{config.tos_raw} << 8 | config.tos_control);
  return digest.value();
}

}  // namespace gradlane
