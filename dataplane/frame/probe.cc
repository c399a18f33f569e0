// probe.cc - writing and parsing probes (worker threads; pure functions)
#include "dataplane/frame/probe.h"

#include <algorithm>
#include <cstring>

#include "collectives/codec_value.h"
#include "collectives/crc32c.h"
#include "config/loader.h"

namespace gradlane {
namespace {

constexpr size_t kProbeCrcOffset = offsetof(ProbeHeader, crc);

uint32_t crc_of(std::span<const uint8_t> payload) noexcept {
  const uint32_t behind = crc32c(kCrcStart, payload.data() + sizeof(ProbeHeader), payload.size() - sizeof(ProbeHeader));
  return ~crc32c(behind, payload.data(), kProbeCrcOffset);
}

}  // namespace

void write_probe(std::span<uint8_t> payload, ProbeHeader header) noexcept {
  header.magic = kProbeMagic;
  header.version = kProbeVersion;
  header.crc = 0;
  store(payload.data(), header);
  std::memset(payload.data() + sizeof(header), 0, payload.size() - sizeof(header));
  store(payload.data() + kProbeCrcOffset, crc_of(payload));
}

std::optional<ProbeHeader> parse_probe(std::span<const uint8_t> payload) noexcept {
  if (payload.size() < kLeastProbe || payload.size() > kMaxMtu || !is_probe(payload)) return std::nullopt;
  const auto header = load<ProbeHeader>(payload.data());
  if (header.version != kProbeVersion || header.crc != crc_of(payload)) return std::nullopt;
  if (header.kind != ProbeKind::kRequest && header.kind != ProbeKind::kReply) return std::nullopt;
  return header;
}

ProbeHeader reply_to(const ProbeHeader& request, const ProbeIdentity& us, uint8_t arrived_tos,
                     size_t arrived) noexcept {
  ProbeHeader reply = request;
  reply.kind = ProbeKind::kReply;
  reply.sender = us;
  reply.arrived_tos = arrived_tos;
  reply.arrived = static_cast<uint16_t>(std::min<size_t>(arrived, UINT16_MAX));
  return reply;
}

ProbeIdentity probe_identity(const NodeConfig& config) {
  ProbeIdentity us{};
  us.rank_table = rank_table_digest(config);
  us.nodes = static_cast<uint16_t>(config.nodes.size());
  us.node = static_cast<uint16_t>(config.rank);
  us.mtu = static_cast<uint16_t>(config.mtu);
  us.codec = static_cast<uint8_t>(config.codec.id());
  us.param = config.codec.param();
  us.protocol = kProtocolVersion;
  if (const uint64_t more = more_arguments(config.codec.arguments()); more != 0) {
    uint8_t bytes[sizeof(more)];
    store(bytes, more);
    const uint32_t digest = crc32c(kCrcStart, bytes, sizeof(bytes)) | 1;
    std::memcpy(us.arguments, &digest, sizeof(us.arguments));
  }
  return us;
}

}  // namespace gradlane
