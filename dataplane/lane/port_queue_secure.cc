// port_queue_secure.cc - packets in envelopes: opens them, and tells neighbours this end's life (worker thread)
#include <rte_mbuf.h>

#include "dataplane/lane/lane.h"
#include "dataplane/lane/port_queue.h"

namespace gradlane {
namespace {

constexpr Nanos kOpenStrangersEvery = kMillisecond;

uint8_t* sealed_in(rte_mbuf* mbuf) noexcept { return rte_pktmbuf_mtod(mbuf, uint8_t*) + kFrameBytes; }

LinkEnds ends_of(const ParsedFrame& parsed, const LocalAddress& local) noexcept {
  return {parsed.source_ip, local.ip, parsed.source_port, parsed.destination_port};
}

}  // namespace

// Opens the envelope before all other code that uses the packet's content. Takes the buffer.
void PortQueue::handle_sealed(rte_mbuf* mbuf, ParsedFrame& parsed, Nanos now) noexcept {
  counters_.classes.add(parsed.traffic);
  const auto envelope = envelope_of({sealed_in(mbuf), parsed.bytes});
  Neighbour* const neighbour = neighbour_at(parsed.source_ip);
  const Ends ends = ends_of(parsed.source_ip, parsed.source_port, parsed.destination_port);
  SecureLink* const link = ends.lane == nullptr ? nullptr : ends.lane->secure_link(ends.rank);
  bool opened = false;
  if (neighbour == nullptr) {
    counters_.add(QueueCounter::kNotNeighbour);
    // Strangers must not take much of this thread's time.
    if (envelope && envelope->kind == EnvelopeKind::kHello && setup_.keys != nullptr &&
        now - stranger_opened_at_ >= kOpenStrangersEvery) {
      stranger_opened_at_ = now;
      if (open_loose(*setup_.keys, *envelope, mbuf, parsed)) note_stranger(mbuf, parsed, now);
    }
  } else if (!envelope) {
    (void)is_good(SecureLink::Verdict::kForged, *neighbour);
    note_untagged(mbuf, parsed, *neighbour);
  } else if (envelope->kind == EnvelopeKind::kProbe) {
    opened = open_loose(*neighbour->keys, *envelope, mbuf, parsed);
    if (!opened) (void)is_good(SecureLink::Verdict::kForged, *neighbour);
  } else if (link == nullptr) {
    const bool other_worker = ends.neighbour != AddressTable::kNone && ends.lane == nullptr;
    counters_.add(other_worker ? QueueCounter::kWrongLane : QueueCounter::kNotNeighbour);
    // A hello may be a replay, so it must not do more than explain why nodes do not meet.
    if (envelope->kind == EnvelopeKind::kHello && open_loose(*neighbour->keys, *envelope, mbuf, parsed)) {
      note_stranger(mbuf, parsed, now);
    }
  } else {
    opened = open_on(*link, *envelope, mbuf, parsed, *neighbour, now);
  }
  if (opened && envelope->kind == EnvelopeKind::kProbe) {
    handle_probe(mbuf, parsed, now);
  } else if (opened && parsed.traffic == TrafficClass::kHost) {
    note_wrong_tos(parsed, *neighbour, now);
  } else if (opened) {
    deliver(mbuf, parsed, now);
    return;
  }
  rte_pktmbuf_free(mbuf);
}

bool PortQueue::open_loose(const KeyRing& keys, const Envelope& envelope, rte_mbuf* mbuf,
                           ParsedFrame& parsed) noexcept {
  const auto bytes =
      secure_->open(keys, envelope, sealed_in(mbuf), parsed.bytes, gradlane::ends_of(parsed, setup_.local));
  if (bytes) parsed.bytes = *bytes;
  return bytes.has_value();
}

// Returns whether there is a packet for the exchange.
bool PortQueue::open_on(SecureLink& link, const Envelope& envelope, rte_mbuf* mbuf, ParsedFrame& parsed,
                        Neighbour& neighbour, Nanos now) noexcept {
  const SecureLink::Opened opened = link.open(envelope, sealed_in(mbuf), parsed.bytes);
  if (link.needs_answer(now)) answer_on(link, parsed, neighbour, now);
  if (!is_good(opened.verdict, neighbour)) return false;
  parsed.bytes = opened.bytes;
  if (const auto key = link.neighbour_key()) neighbour.used_key.store(*key, std::memory_order_relaxed);
  return opened.bytes != 0;
}

bool PortQueue::is_good(SecureLink::Verdict verdict, Neighbour& neighbour) noexcept {
  switch (verdict) {
    case SecureLink::Verdict::kGood:
      return true;
    case SecureLink::Verdict::kUnmet:
      counters_.add(QueueCounter::kUnmet);
      return false;
    case SecureLink::Verdict::kReplayed:
      counters_.add(QueueCounter::kReplayed);
      return false;
    case SecureLink::Verdict::kForged:
      break;
  }
  counters_.add(QueueCounter::kForged);
  neighbour.forged.fetch_add(1, std::memory_order_relaxed);
  return false;
}

// Sends a hello without content to where the packet came from.
void PortQueue::answer_on(SecureLink& link, const ParsedFrame& parsed, const Neighbour& neighbour, Nanos now) noexcept {
  Flow flow;
  flow.source_mac = setup_.local.mac;
  flow.source_ip = setup_.local.ip;
  flow.destination_ip = neighbour.ip;
  flow.source_port = parsed.destination_port;
  flow.destination_port = parsed.source_port;
  send_hello(link, flow, neighbour, now);
}

void PortQueue::send_hello(SecureLink& link, Flow& flow, const Neighbour& neighbour, Nanos now) noexcept {
  const BlankFrame blank = blank_frame(neighbour, flow);
  if (blank.mbuf == nullptr) return;
  send_blank(blank.mbuf, link.answer(sealed_in(blank.mbuf), now), flow, classifier_.tos_of(TrafficClass::kControl));
}

}  // namespace gradlane
