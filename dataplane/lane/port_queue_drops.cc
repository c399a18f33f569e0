// port_queue_drops.cc - signs of a wrong configuration in dropped packets (worker thread; seldom)
#include <rte_mbuf.h>

#include <algorithm>
#include <bit>

#include "dataplane/frame/internet.h"
#include "dataplane/lane/lane.h"
#include "dataplane/lane/port_queue.h"

namespace gradlane {
namespace {

using namespace internet;

const uint8_t* data_of(const rte_mbuf* mbuf) noexcept { return rte_pktmbuf_mtod(mbuf, const uint8_t*); }

// Returns whether gradlane seems to have made this frame, an IPv4 packet to this node's address.
bool looks_like_ours(const rte_mbuf* mbuf, bool sealed) noexcept {
  if (mbuf->data_len < kFrameBytes + sizeof(LinkHeader)) return false;
  const uint8_t* const ip = data_of(mbuf) + kEthernetBytes;
  if (ip[0] != 0x45 || ip[kIpProtocol] != kUdp) return false;
  const uint8_t* const payload = data_of(mbuf) + kFrameBytes;
  if (load<uint16_t>(payload) == kMagic) return true;
  const size_t length = load16(ip + kIpv4Bytes + kUdpLength);
  const bool whole = length >= kUdpBytes && length - kUdpBytes <= mbuf->data_len - kFrameBytes;
  return sealed && whole && envelope_of({payload, length - kUdpBytes});
}

}  // namespace

bool is_whole(std::span<const uint8_t> packet) noexcept {
  if (packet.size() < sizeof(LinkHeader)) return false;
  const auto header = load<LinkHeader>(packet.data());
  const uint32_t payload = crc32c(kCrcStart, packet.data() + sizeof(LinkHeader), packet.size() - sizeof(LinkHeader));
  return header.magic == kMagic && header.crc == ~crc32c(payload, load<HeaderWords>(packet.data()));
}

Neighbour* PortQueue::neighbour_at(uint32_t ip) const noexcept {
  const size_t number = numbers_.find(ip);
  return number == AddressTable::kNone ? nullptr : neighbours_[number];
}

// Notes a neighbour's packet that has a ToS byte of no class, or goes to another UDP port.
void PortQueue::note_misconfigured(const rte_mbuf* mbuf, const ParsedFrame& parsed, Nanos now) noexcept {
  if (!looks_like_ours(mbuf, secure_.has_value())) return;
  const uint8_t* const ip = data_of(mbuf) + kEthernetBytes;
  Neighbour* const neighbour = neighbour_at(load32(ip + kIpSource));
  if (neighbour == nullptr) return;
  if (parsed.destination_port == 0) {
    const uint16_t port = load16(ip + kIpv4Bytes + kUdpDestination);
    const bool ours = unsigned{port} - setup_.local.udp_port < setup_.local.udp_ports;  // then its length is wrong
    if (!ours) neighbour->other_port.store(port, std::memory_order_relaxed);
    return;
  }
  note_wrong_tos(parsed, *neighbour, now);
}

void PortQueue::note_wrong_tos(const ParsedFrame& parsed, Neighbour& neighbour, Nanos now) noexcept {
  counters_.add(QueueCounter::kWrongTos);
  neighbour.wrong_tos.fetch_add(1, std::memory_order_relaxed);
  neighbour.last_tos.store(parsed.tos, std::memory_order_relaxed);
  const unsigned to = unsigned{parsed.destination_port} - setup_.local.udp_port;
  const unsigned from = unsigned{parsed.source_port} - setup_.local.udp_port;
  if (to < lanes_.size() && lanes_[to] != nullptr) {
    lanes_[to]->note_wrong_tos(neighbour.node * setup_.ranks_per_node + from % setup_.ranks_per_node, parsed.tos, now);
  }
}

// Notes a hello from an address that is no neighbour's, or from a rank that no neighbour has. The hello says which rank
// its sender is, and how many trainers and lanes it has. Ranks and ports follow from these numbers.
void PortQueue::note_stranger(const rte_mbuf* mbuf, const ParsedFrame& parsed, Nanos now) noexcept {
  const uint8_t* const packet = data_of(mbuf) + kFrameBytes;
  if (!looks_like_ours(mbuf, false) || parsed.bytes < sizeof(LinkHeader) + kLeastHello) return;
  if (load<LinkHeader>(packet).kind != PacketKind::kHello) return;
  if (Neighbour* const neighbour = neighbour_at(parsed.source_ip)) {
    constexpr size_t kSettings = sizeof(LinkHeader) + offsetof(Hello, settings);
    if (parsed.bytes < kSettings + sizeof(RingSettings)) return;
    const auto theirs = load<RingSettings>(packet + kSettings);
    neighbour->told.store(
        std::bit_cast<uint64_t>(PeerSettings{theirs.nodes, theirs.trainers, theirs.lanes, theirs.local_reduce}),
        std::memory_order_relaxed);
    neighbour->peer_settings_at.store(now, std::memory_order_relaxed);
    return;
  }
  const auto rank = load<uint16_t>(packet + sizeof(LinkHeader) + offsetof(Hello, rank));
  stranger_.store(uint64_t{parsed.source_ip} << 32 | rank, std::memory_order_relaxed);
  stranger_at_.store(now, std::memory_order_relaxed);
}

// Notes whether a packet that was refused is intact but has no envelope.
void PortQueue::note_untagged(const rte_mbuf* mbuf, const ParsedFrame& parsed, Neighbour& neighbour) noexcept {
  if (!is_whole({data_of(mbuf) + kFrameBytes, parsed.bytes})) return;
  neighbour.untagged.fetch_add(1, std::memory_order_relaxed);
}

// Notes a neighbour's ARP request for an address that no node has. The request is for us if the neighbour has a wrong
// address for us.
void PortQueue::note_question(const ParsedFrame& parsed) noexcept {
  Neighbour* const neighbour = neighbour_at(parsed.source_ip);
  if (neighbour == nullptr || std::ranges::find(setup_.addresses, parsed.asked_ip) != setup_.addresses.end()) return;
  neighbour->asks_for.store(parsed.asked_ip, std::memory_order_relaxed);
}

}  // namespace gradlane
