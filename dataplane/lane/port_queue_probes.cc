// port_queue_probes.cc - probes of the paths to neighbours: sends and answers them, and stores the answers (worker
// thread)
#include <rte_mbuf.h>

#include <algorithm>

#include "dataplane/lane/port_queue.h"

namespace gradlane {
namespace {

constexpr Nanos kStayAwake = 20 * kMillisecond;
// time between two checks for probes to send, while there are none
constexpr Nanos kLookToSendEvery = 100 * kMicrosecond;
constexpr size_t kProbeBurst = 16;  // most probes at once; more would wait for one another
constexpr size_t kIpLength = 2;

uint8_t* bytes_of(rte_mbuf* mbuf) noexcept { return rte_pktmbuf_mtod(mbuf, uint8_t*); }

// Returns the length of the IP packet, as its header says.
size_t ip_bytes(rte_mbuf* mbuf) noexcept {
  return __builtin_bswap16(load<uint16_t>(bytes_of(mbuf) + kEthernetBytes + kIpLength));
}

}  // namespace

// Handles a probe. The caller keeps the buffer. Only neighbours get a reply, only at ports of gradlane, and it is not
// longer than the request.
void PortQueue::handle_probe(rte_mbuf* mbuf, const ParsedFrame& parsed, Nanos now) noexcept {
  Neighbour* const from = neighbour_at(parsed.source_ip);
  const auto header = parse_probe({bytes_of(mbuf) + kFrameBytes, parsed.bytes});
  const unsigned port = unsigned{parsed.source_port} - setup_.local.udp_port;
  if (from == nullptr || !header || port >= setup_.local.udp_ports) {
    counters_.add(QueueCounter::kProbeRefused);
    return;
  }
  // The worker stays awake for probes that are timed, which are the shortest. Other probes come every few seconds, and
  // an idle node may stay idle then.
  if (parsed.bytes == kLeastProbe) probing_until_ = now + kStayAwake;
  if (header->kind == ProbeKind::kRequest) {
    send_probe(*from, reply_to(*header, setup_.identity, parsed.tos, ip_bytes(mbuf)), parsed.bytes, parsed.source_port);
  } else if (!from->probes.put_answer(*header, parsed.tos, parsed.bytes, now) &&
             !from->lengths.put_answer(*header, parsed.tos, parsed.bytes, now)) {
    counters_.add(QueueCounter::kProbeRefused);
  }
}

void PortQueue::send_probe(const Neighbour& neighbour, const ProbeHeader& header, size_t bytes, uint16_t to) noexcept {
  rte_mbuf* const mbuf = pool_.allocate();
  if (mbuf == nullptr) return;
  const Packet packet = fresh_packet(mbuf);
  if (rte_pktmbuf_tailroom(mbuf) >= kFrameBytes + bytes + (secure_ ? sealed_bytes(EnvelopeKind::kProbe) : 0)) {
    write_probe({packet.data, bytes}, header);
    Flow flow;
    flow.source_mac = setup_.local.mac;
    flow.source_ip = setup_.local.ip;
    flow.destination_ip = neighbour.ip;
    flow.source_port = setup_.local.udp_port;
    flow.destination_port = to;
    if (queue_probe(packet, bytes, flow, neighbour, header.tos)) counters_.add(QueueCounter::kProbeSent);
  }
  rte_pktmbuf_free(mbuf);
}

bool PortQueue::queue_probe(const Packet& packet, size_t bytes, Flow& flow, const Neighbour& neighbour,
                            uint8_t tos) noexcept {
  if (!secure_) return send_plain(packet, bytes, flow, neighbour, tos);
  const BlankFrame blank = blank_frame(neighbour, flow);
  if (blank.mbuf == nullptr) return blank.lost;
  const LinkEnds ends{flow.source_ip, flow.destination_ip, flow.source_port, flow.destination_port};
  const KeyRing::Keys keys = neighbour.keys->keys();
  const RingKey* const used = keys.with(neighbour.used_key.load(std::memory_order_relaxed));
  send_blank(blank.mbuf,
             secure_->seal_probe(used != nullptr ? *used : *keys.newest, packet.data, bytes, ends,
                                 bytes_of(blank.mbuf) + kFrameBytes),
             flow, tos);
  return true;
}

// Sends probes. Boards are checked only every kLookToSendEvery, because there may be many, and probes are rare.
void PortQueue::send_probes(Nanos now) noexcept {
  if (now < probes_at_ && !probing(now)) return;
  probes_at_ = now + kLookToSendEvery;
  size_t sent = 0;
  for (Neighbour* const neighbour : neighbours_) {
    ProbeOrder order;
    if (!neighbour->probes.next(now, order) && !neighbour->lengths.next(now, order)) continue;
    if (order.awake) probing_until_ = now + kStayAwake;
    ProbeHeader header{};
    header.kind = ProbeKind::kRequest;
    header.id = order.id;
    header.nonce = order.nonce;
    header.sender = setup_.identity;
    header.tos = order.tos;
    send_probe(*neighbour, header, order.bytes, setup_.local.udp_port);
    if (++sent == kProbeBurst) return;
  }
}

}  // namespace gradlane
