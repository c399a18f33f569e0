// port_queue.cc - receives, sorts and sends frames (worker thread only)
#include "dataplane/lane/port_queue.h"

#include <rte_mbuf.h>
#include <rte_prefetch.h>

#include <algorithm>
#include <cstring>

#include "collectives/wire.h"
#include "compress/codec.h"
#include "dataplane/frame/internet.h"
#include "dataplane/frame/probe.h"
#include "dataplane/lane/lane.h"

namespace gradlane {
namespace {

constexpr Nanos kQuiet = 300 * kMillisecond;  // pause after a goodbye; longer than a device takes to close
constexpr Nanos kStall = 5 * kMillisecond;
// least time of refusals before a socket pauses, instead of kStall: its link may be slow
constexpr Nanos kSocketStall = kSecond;
// A frame with IEEE 802's EtherType for local experiments says only that this end of the link is about to go.
constexpr std::array<uint8_t, 2> kGoodbyeType = {0x88, 0xb5};

// Returns the verdict on a packet for the exchange after the device's checks. The device may call a missing UDP
// checksum wrong.
FrameVerdict device_verdict(rte_mbuf* mbuf, FrameVerdict parsed) noexcept {
  if (parsed != FrameVerdict::kGradlane && parsed != FrameVerdict::kProbe) return parsed;
  const uint64_t flags = mbuf->ol_flags;
  if ((flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) == RTE_MBUF_F_RX_IP_CKSUM_BAD) return FrameVerdict::kBadIpHeader;
  const bool bad = (flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_BAD;
  return bad && has_udp_checksum(rte_pktmbuf_mtod(mbuf, const uint8_t*)) ? FrameVerdict::kBadChecksum : parsed;
}

uint8_t* frame_of(rte_mbuf* mbuf) noexcept { return rte_pktmbuf_mtod(mbuf, uint8_t*); }

bool is_goodbye(rte_mbuf* mbuf) noexcept {
  return mbuf->data_len >= kEthernetBytes && std::memcmp(frame_of(mbuf) + 12, kGoodbyeType.data(), 2) == 0;
}

std::vector<uint32_t> addresses_of(std::span<Neighbour* const> neighbours) {
  std::vector<uint32_t> addresses;
  for (const Neighbour* const it : neighbours) addresses.push_back(it->ip);
  return addresses;
}

void set_length(rte_mbuf* mbuf, size_t bytes) noexcept {
  mbuf->data_len = static_cast<uint16_t>(bytes);
  mbuf->pkt_len = static_cast<uint32_t>(bytes);
}

}  // namespace

uint64_t frame_source(const uint8_t* frame) noexcept {
  MacAddress mac;
  std::memcpy(mac.data(), frame + internet::kSourceMac, mac.size());
  return pack_mac(mac);
}

uint64_t pack_mac(const MacAddress& mac) noexcept {
  uint64_t packed = 0;
  std::memcpy(&packed, mac.data(), mac.size());
  return packed | kMacKnown;
}

MacAddress unpack_mac(uint64_t packed) noexcept {
  MacAddress mac;
  std::memcpy(mac.data(), &packed, mac.size());
  return mac;
}

PortQueue::PortQueue(Port& port, unsigned queue, PacketPool& pool, const Classifier& classifier, const Setup& setup,
                     std::span<Neighbour* const> neighbours)
    : port_(port),
      queue_(static_cast<uint16_t>(queue)),
      pool_(pool),
      classifier_(classifier),
      setup_(setup),
      neighbours_(neighbours.begin(), neighbours.end()),
      numbers_(addresses_of(neighbours)),
      sources_(neighbours.size(), SourceWatch(setup.peer_timeout)),
      arp_due_(neighbours.size()),
      lanes_(setup.local.udp_ports),
      checksum_(port.local_link() || port.of_sockets() ? Checksum::kNone
                : port.checksum_offload()              ? Checksum::kDevice
                                                       : Checksum::kSoftware),
      sockets_(port.of_sockets()),
      frames_(!sockets_ || setup.faults.any()) {
  if (setup.faults.any()) injector_ = std::make_unique<FaultInjector>(setup.faults, setup.fault_stream);
  if (setup.security != Security::kNone) secure_.emplace(setup.security);
}

void PortQueue::connect(unsigned index, Lane& lane) { lanes_[index] = &lane; }

// ---- Receiving

bool PortQueue::receive(Nanos now) noexcept {
  // Frames that were held back came earlier. They are handled in any case, because they would keep this thread awake.
  if (!port_.started() || now < quiet_until_) return handle_held(now);
  quiet_until_ = 0;
  if (!frames_) return receive_datagrams(now);
  std::array<rte_mbuf*, kBurst> burst;
  const uint16_t count = port_.receive(queue_, burst.data(), kBurst);
  if (count == 0 && deadline() == kNever) return false;
  for (uint16_t i = 0; i < count; ++i) rte_prefetch0(frame_of(burst[i]));
  for (uint16_t i = 0; i < count; ++i) arrive(burst[i], now);
  const bool late = handle_held(now);
  return count != 0 || late;
}

// Receives packets without headers. Packets of one superpacket have the same sender and receiver, so it looks for these
// once.
bool PortQueue::receive_datagrams(Nanos now) noexcept {
  std::array<rte_mbuf*, kBurst> burst;
  DatagramPath path;
  uint16_t left = kBurst;
  for (unsigned calls = 0; left != 0 && calls < kMostCalls; ++calls) {
    const uint16_t count = port_.receive_datagrams(queue_, burst.data(), left, path);
    if (count == 0) break;
    left = static_cast<uint16_t>(left - count);
    const Ends ends = ends_of(path.source_ip, path.source_port, path.destination_port);
    Lane* const lane = usual_receiver(path, ends, now);
    SecureLink* const link = lane == nullptr ? nullptr : lane->secure_link(ends.rank);
    uint64_t taken = 0;
    uint64_t bytes = 0;
    for (uint16_t i = 0; i < count; ++i) {
      const Packet packet = packet_of(burst[i]);
      size_t length = burst[i]->data_len - kFrameBytes;
      const auto envelope = link == nullptr ? std::nullopt : envelope_of({packet.data, length});
      const bool data = envelope ? envelope->kind == EnvelopeKind::kData : !is_probe({packet.data, length});
      if (lane == nullptr || !data || envelope.has_value() != secure_.has_value()) {
        make_frame(burst[i], path);
        arrive(burst[i], now);
        continue;
      }
      ++taken;
      bytes += burst[i]->data_len;
      if (envelope) {
        const SecureLink::Opened opened = link->open(*envelope, packet.data, length);
        if (!is_good(opened.verdict, *neighbours_[ends.neighbour])) {
          rte_pktmbuf_free(burst[i]);
          continue;
        }
        length = opened.bytes;
      }
      lane->receive(ends.rank, packet, length, now);
    }
    counters_.add(QueueCounter::kReceived, taken);
    counters_.add(QueueCounter::kReceivedBytes, bytes);
    counters_.verdicts.add(FrameVerdict::kGradlane, taken);
    counters_.classes.add(classifier_.classify(path.tos), taken);
  }
  return left != kBurst;
}

PortQueue::Ends PortQueue::ends_of(uint32_t source_ip, uint16_t source_port, uint16_t destination_port) const noexcept {
  const size_t number = numbers_.find(source_ip);
  const unsigned to = unsigned{destination_port} - setup_.local.udp_port;
  const unsigned from = unsigned{source_port} - setup_.local.udp_port;
  const unsigned ranks = setup_.ranks_per_node;
  const bool apart = from >= lanes_.size() || to >= lanes_.size() || from / ranks != to / ranks;
  if (number == AddressTable::kNone || apart) return {};
  return {number, neighbours_[number]->node * ranks + from % ranks, lanes_[to]};
}

// Returns the lane for packets of a socket that have nothing unusual about them; null if they must be looked at one by
// one.
Lane* PortQueue::usual_receiver(const DatagramPath& path, const Ends& ends, Nanos now) const noexcept {
  if (ends.neighbour == AddressTable::kNone || ends.lane == nullptr || !ends.lane->knows(ends.rank)) return nullptr;
  const bool refused = now < neighbours_[ends.neighbour]->doubled_until.load(std::memory_order_relaxed);
  const bool ours = classifier_.classify(path.tos) != TrafficClass::kHost && setup_.claim->held();
  return ours && !refused ? ends.lane : nullptr;
}

void PortQueue::arrive(rte_mbuf* mbuf, Nanos now) noexcept {
  counters_.add(QueueCounter::kReceived);
  counters_.add(QueueCounter::kReceivedBytes, mbuf->pkt_len);
  if (mbuf->nb_segs != 1) {
    counters_.add(QueueCounter::kSegmented);
    rte_pktmbuf_free(mbuf);
    return;
  }
  // A goodbye must not get lost, whatever is injected: this process would crash if it polled the link later.
  if (port_.needs_goodbye() && is_goodbye(mbuf)) {
    quiet_until_ = now + kQuiet;
    rte_pktmbuf_free(mbuf);
    return;
  }
  if (injector_) {
    inject(mbuf, now);
  } else {
    handle(mbuf, now);
  }
}

void PortQueue::handle(rte_mbuf* mbuf, Nanos now) noexcept {
  ParsedFrame parsed = parse_frame({frame_of(mbuf), mbuf->data_len}, setup_.local, classifier_);
  parsed.verdict = device_verdict(mbuf, parsed.verdict);
  counters_.verdicts.add(parsed.verdict);
  if (!look_at_claim(parsed)) {
    rte_pktmbuf_free(mbuf);
    return;
  }
  if (secure_ && parsed.destination_port != 0) {
    handle_sealed(mbuf, parsed, now);
    return;
  }
  switch (parsed.verdict) {
    case FrameVerdict::kGradlane:
      counters_.classes.add(parsed.traffic);
      deliver(mbuf, parsed, now);
      return;
    case FrameVerdict::kProbe:
      handle_probe(mbuf, parsed, now);
      break;
    case FrameVerdict::kArp:
      learn(parsed.source_ip, parsed.source_mac, now);
      [[fallthrough]];
    case FrameVerdict::kEcho: {
      const size_t bytes = answer_frame({frame_of(mbuf), mbuf->data_len}, parsed, setup_.local);
      if (bytes == 0) break;
      set_length(mbuf, bytes);
      mbuf->ol_flags = 0;
      if (!queue(mbuf)) break;
      counters_.add(QueueCounter::kAnswered);
      return;
    }
    case FrameVerdict::kHost:
      counters_.classes.add(TrafficClass::kHost);
      note_misconfigured(mbuf, parsed, now);
      break;
    case FrameVerdict::kNotForUs:
      if (parsed.asked_ip != 0) note_question(parsed);
      break;
    default:
      break;
  }
  rte_pktmbuf_free(mbuf);
}

void PortQueue::deliver(rte_mbuf* mbuf, const ParsedFrame& parsed, Nanos now) noexcept {
  const Ends ends = ends_of(parsed.source_ip, parsed.source_port, parsed.destination_port);
  if (ends.neighbour == AddressTable::kNone) {
    counters_.add(QueueCounter::kNotNeighbour);
    // With sockets, any program on this machine may have sent it.
    if (parsed.source_ip == setup_.local.ip && !port_.of_sockets()) {
      setup_.claim->contest(frame_source(frame_of(mbuf)));
    } else {
      note_stranger(mbuf, parsed, now);
    }
  } else if (is_stranger(ends.neighbour, mbuf, now)) {
    counters_.add(QueueCounter::kStranger);
  } else if (ends.lane == nullptr) {
    counters_.add(QueueCounter::kWrongLane);
  } else if (!ends.lane->knows(ends.rank)) {
    counters_.add(QueueCounter::kNotNeighbour);
    note_stranger(mbuf, parsed, now);
  } else {
    ends.lane->receive(ends.rank, packet_of(mbuf), parsed.bytes, now);
    return;
  }
  rte_pktmbuf_free(mbuf);
}

// ---- Sending

// Queues a frame that is not for sockets: it has no path.
bool PortQueue::queue(rte_mbuf* mbuf) noexcept {
  if (sockets_) return false;
  if (queued_count_ == kQueued) flush();
  if (queued_count_ == kQueued) return false;
  queued_[queued_count_++] = mbuf;
  return true;
}

bool PortQueue::is_read(const rte_mbuf* mbuf) const noexcept {
  return rte_mbuf_refcnt_read(mbuf) != 1 && place_of(mbuf) == queued_count_;
}

bool PortQueue::send(const Packet& packet, size_t bytes, Flow& flow, const Neighbour& neighbour,
                     SecureLink* secure) noexcept {
  const uint8_t tos = classifier_.tos_of(class_of(packet.data, bytes));
  if (secure == nullptr) return send_plain(packet, bytes, flow, neighbour, tos);
  const BlankFrame blank = blank_frame(neighbour, flow);
  if (blank.mbuf == nullptr) return blank.lost;
  send_blank(blank.mbuf, secure->seal(packet.data, bytes, frame_of(blank.mbuf) + kFrameBytes), flow, tos);
  return true;
}

PortQueue::BlankFrame PortQueue::blank_frame(const Neighbour& neighbour, Flow& flow) noexcept {
  if (!can_send(neighbour, flow)) return {nullptr, true};
  if (!has_place()) return {nullptr, false};
  rte_mbuf* const mbuf = pool_.allocate();
  if (mbuf == nullptr) counters_.add(QueueCounter::kNoCopy);
  return {mbuf, false};
}

void PortQueue::send_blank(rte_mbuf* mbuf, size_t bytes, const Flow& flow, uint8_t tos) noexcept {
  if (bytes == 0) {
    counters_.add(QueueCounter::kUnmet);
    rte_pktmbuf_free(mbuf);
    return;
  }
  queued_[queued_count_] = mbuf;
  finish(queued_count_++, bytes, flow, tos);
}

bool PortQueue::can_send(const Neighbour& neighbour, Flow& flow) noexcept {
  const uint64_t mac = neighbour.mac.load(std::memory_order_relaxed);
  if (mac == 0) {
    counters_.add(QueueCounter::kNoMac);
    return false;
  }
  flow.destination_mac = unpack_mac(mac);
  if (!setup_.claim->held()) {
    counters_.add(QueueCounter::kNoAddress);
    return false;
  }
  if (stalled_until_ != 0 || !port_.started()) {
    counters_.add(QueueCounter::kLinkDown);
    return false;
  }
  return true;
}

bool PortQueue::has_place() noexcept {
  if (queued_count_ == kQueued) flush();
  if (queued_count_ != kQueued) return true;
  counters_.add(QueueCounter::kSendBusy);
  return false;
}

bool PortQueue::send_plain(const Packet& packet, size_t bytes, Flow& flow, const Neighbour& neighbour,
                           uint8_t tos) noexcept {
  auto* mbuf = static_cast<rte_mbuf*>(packet.handle);
  // The packet is sent again while its earlier transmission is still queued here. The queued frame gets the new
  // headers, so the checksum must be made again.
  if (rte_mbuf_refcnt_read(mbuf) != 1) {
    if (const size_t place = place_of(mbuf); place != queued_count_) {
      finish(place, bytes, flow, tos);
      return true;
    }
  }
  if (!can_send(neighbour, flow)) return true;
  if (!has_place()) return false;
  uint8_t* frame = packet.data - kFrameBytes;
  // A copy is sent if the port shares buffers. A copy is also sent if the device still has the packet from an earlier
  // transmission; it may keep a packet until hundreds of others have gone.
  if (port_.shares_buffers() || rte_mbuf_refcnt_read(mbuf) != 1) {
    mbuf = pool_.allocate();
    if (mbuf == nullptr) {
      counters_.add(QueueCounter::kNoCopy);
      return false;
    }
    frame = frame_of(mbuf);
    std::memcpy(frame + kFrameBytes, packet.data, bytes);
  } else {
    // The device gets a reference of its own, so that the exchange may release the packet.
    rte_mbuf_refcnt_update(mbuf, 1);
    mbuf->data_off = static_cast<uint16_t>(frame - static_cast<uint8_t*>(mbuf->buf_addr));
    mbuf->ol_flags = 0;
  }
  queued_[queued_count_] = mbuf;
  finish(queued_count_++, bytes, flow, tos);
  return true;
}

// Writes everything around the queued payload at `place`, which has `bytes` bytes: headers, checksum, path.
void PortQueue::finish(size_t place, size_t bytes, const Flow& flow, uint8_t tos) noexcept {
  rte_mbuf* const mbuf = queued_[place];
  uint8_t* const frame = frame_of(mbuf);
  if (sockets_) {
    paths_[place] = {.source_ip = flow.source_ip,
                     .destination_ip = flow.destination_ip,
                     .source_port = flow.source_port,
                     .destination_port = flow.destination_port,
                     .tos = tos};
  } else {
    write_headers(frame, flow, tos, bytes);
  }
  set_length(mbuf, kFrameBytes + bytes);
  if (checksum_ == Checksum::kSoftware) seal_udp(frame, bytes);
  if (checksum_ != Checksum::kDevice) return;
  begin_udp_checksum(frame);
  mbuf->tx_offload = 0;
  mbuf->l2_len = kEthernetBytes;
  mbuf->l3_len = kIpv4Bytes;
  mbuf->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_UDP_CKSUM;
}

void PortQueue::flush() noexcept {
  if (queued_count_ == 0 || quiet_until_ != 0 || !port_.started()) return;
  // The port may send any of the frames, and moves the others to the end. So their bytes are known only after the call.
  uint64_t bytes = 0;
  for (size_t i = 0; i < queued_count_; ++i) bytes += queued_[i]->pkt_len;
  const auto count = static_cast<uint16_t>(queued_count_);
  const uint16_t sent = sockets_ ? port_.send_datagrams(queue_, queued_.data(), paths_.data(), count)
                                 : port_.send(queue_, queued_.data(), count);
  refused_ = sent == 0;
  if (sent != 0) refused_at_ = 0;
  for (size_t i = sent; i < queued_count_; ++i) bytes -= queued_[i]->pkt_len;
  counters_.add(QueueCounter::kSent, sent);
  counters_.add(QueueCounter::kSentBytes, bytes);
  std::copy(queued_.begin() + sent, queued_.begin() + count, queued_.begin());
  if (sockets_) std::copy(paths_.begin() + sent, paths_.begin() + count, paths_.begin());
  queued_count_ -= sent;
}

void PortQueue::publish() noexcept {
  events_.publish(counters_.events);
  verdicts_.publish(counters_.verdicts);
  classes_.publish(counters_.classes);
}

void PortQueue::poll(Nanos now) noexcept {
  if (events_.due(now)) publish();
  look_after_stall(now);
  overdue_at_ = sockets_ && port_.started() ? port_.report_overdue(queue_, now) : kNever;
  if (!setup_.first) return;
  claim_address(now);
  if (!setup_.claim->held()) return;
  send_probes(now);
  ask_for_addresses(now);
}

// Pauses when the device takes nothing. After 5 ms of refusals (a socket: 1 s) nothing is sent for 5 ms. If the next
// try is refused as well, there is another pause at once, and so on.
void PortQueue::look_after_stall(Nanos now) noexcept {
  if (stalled_until_ != 0) {
    if (now < stalled_until_) return;
    stalled_until_ = 0;
    refused_ = false;
  }
  if (!refused_) return;
  if (refused_at_ == 0) refused_at_ = now;
  if (now - refused_at_ < (port_.of_sockets() ? kSocketStall : kStall)) return;
  stalled_until_ = now + kStall;
  counters_.add(QueueCounter::kLinkDown, queued_count_);
  drop_queued();
}

// ---- The end

void PortQueue::say_goodbye() noexcept {
  if (!port_.needs_goodbye()) return;
  rte_mbuf* const mbuf = pool_.allocate();
  if (mbuf == nullptr) return;
  std::memset(frame_of(mbuf), 0, kLeastFrame);
  std::ranges::copy(kGoodbyeType, frame_of(mbuf) + 12);
  set_length(mbuf, kLeastFrame);
  if (!queue(mbuf)) rte_pktmbuf_free(mbuf);
  flush();
}

void PortQueue::drop_queued() noexcept {
  for (size_t i = 0; i < queued_count_; ++i) rte_pktmbuf_free(queued_[i]);
  queued_count_ = 0;
}

}  // namespace gradlane
