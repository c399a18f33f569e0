// port_queue_addresses.cc - IP addresses and their MAC addresses: this node's, its neighbours', and one that two
// machines have (worker thread)
#include <rte_mbuf.h>

#include <algorithm>
#include <cstring>

#include "dataplane/lane/port_queue.h"

namespace gradlane {
namespace {

constexpr Nanos kArpInterval = 100 * kMillisecond;
constexpr uint64_t kQuickArps = 50;      // number of requests at kArpInterval
constexpr Nanos kSlowArp = 1 * kSecond;  // interval after kQuickArps requests, or if the address is known
// If there are more neighbours than this, they are asked less often, because all of them receive each request.
constexpr size_t kSlowArps = 64;
constexpr size_t kArpBurst = 16;           // most requests at once
constexpr Nanos kArpPause = kMillisecond;  // pause after kArpBurst requests
// least time for which packets are refused, and its share of timeouts.peer; a node that is still doubled is detected
// again sooner, because the ring is not ready, so that hellos come every 64th of timeouts.peer
constexpr Nanos kDoubledTime = 3 * kSecond;
constexpr Nanos kDoubledShare = 8;

// Returns whether this MAC address has recently claimed to be the neighbour's. A machine that has the neighbour's
// address says so by ARP before anything else, and again and again.
bool claims(const Neighbour& neighbour, uint64_t mac, Nanos within, Nanos now) noexcept {
  return neighbour.claimant.load(std::memory_order_relaxed) == mac &&
         now - neighbour.claimed_at.load(std::memory_order_relaxed) < within;
}

}  // namespace

Failure doubled_failure(const Neighbour& neighbour, unsigned rank, Nanos now) noexcept {
  if (now >= neighbour.doubled_until.load(std::memory_order_relaxed)) return {};
  return {.code = FailureCode::kDuplicateRank,
          .rank = static_cast<uint16_t>(rank),
          .ours = neighbour.sources[0].load(std::memory_order_relaxed),
          .theirs = neighbour.sources[1].load(std::memory_order_relaxed)};
}

// ---- This node's address

// Notes conflicts about this node's address. Returns whether the frame may be processed. No frame may be processed
// before the address is this node's.
bool PortQueue::look_at_claim(const ParsedFrame& parsed) noexcept {
  AddressClaim& claim = *setup_.claim;
  const bool rival = parsed.verdict == FrameVerdict::kRival;
  const bool probe = parsed.verdict == FrameVerdict::kArp && parsed.source_ip == 0;
  // Two ports of this node may be in one network and receive each other's packets.
  if ((rival || probe) && std::ranges::find(setup_.macs, parsed.source_mac) == setup_.macs.end()) {
    rival ? claim.contest(pack_mac(parsed.source_mac)) : claim.asked(pack_mac(parsed.source_mac));
  }
  return claim.held();
}

void PortQueue::claim_address(Nanos now) noexcept {
  const AddressClaim::Step step = setup_.claim->poll(port_.started() && port_.link_up(), now);
  if (step == AddressClaim::Step::kNone) return;
  LocalAddress from = setup_.local;
  if (step == AddressClaim::Step::kProbe) from.ip = 0;
  (void)send_arp(from, setup_.local.ip);
}

bool PortQueue::send_arp(const LocalAddress& from, uint32_t ip) noexcept {
  rte_mbuf* const mbuf = pool_.allocate();
  if (mbuf == nullptr) return false;
  auto* const frame = rte_pktmbuf_mtod(mbuf, uint8_t*);
  std::memset(frame, 0, kLeastFrame);
  write_arp_request(frame, from, ip);
  mbuf->data_len = kLeastFrame;
  mbuf->pkt_len = kLeastFrame;
  if (!queue(mbuf)) {
    rte_pktmbuf_free(mbuf);
    return false;
  }
  counters_.add(QueueCounter::kArpSent);
  return true;
}

// ---- Neighbours' addresses

// Known addresses are asked for from time to time, too. An address may change. ARP believes any answer, so a wrong
// address must not stay.
void PortQueue::ask_for_addresses(Nanos now) noexcept {
  if (now < arp_at_) return;
  arp_at_ = kNever;
  const Nanos slow = std::max(kSlowArp, neighbours_.size() * kSlowArp / kSlowArps);
  size_t sent = 0;
  for (size_t i = 0; i < neighbours_.size(); ++i) {
    Neighbour& neighbour = *neighbours_[i];
    if (neighbour.configured) continue;
    if (now >= arp_due_[i]) {
      if (sent == kArpBurst || !send_arp(setup_.local, neighbour.ip)) {
        arp_at_ = now + (sent == kArpBurst ? kArpPause : kArpInterval);
        return;
      }
      ++sent;
      const bool known = neighbour.mac.load(std::memory_order_relaxed) != 0;
      const uint64_t tries = known ? kQuickArps : neighbour.arp_tries.fetch_add(1, std::memory_order_relaxed);
      arp_due_[i] = now + (tries < kQuickArps ? kArpInterval : slow);
    }
    arp_at_ = std::min(arp_at_, arp_due_[i]);
  }
}

// Learns a neighbour's MAC address by ARP. A machine that sends packets as this neighbour remains the neighbour while
// it is heard, even if another machine answers for the address.
void PortQueue::learn(uint32_t ip, const MacAddress& mac, Nanos now) noexcept {
  const uint64_t packed = pack_mac(mac);
  const size_t number = numbers_.find(ip);
  if (number == AddressTable::kNone || neighbours_[number]->configured) return;
  Neighbour& neighbour = *neighbours_[number];
  if (sources_[number].hears(now) && packed != sources_[number].believed()) {
    neighbour.claimant.store(packed, std::memory_order_relaxed);
    neighbour.claimed_at.store(now, std::memory_order_relaxed);
    return;
  }
  neighbour.mac.store(packed, std::memory_order_relaxed);
}

// Returns whether a packet must be dropped because its sender is a second machine. Only a MAC address that ARP connects
// with the neighbour counts. Other packets may be noise from anywhere, which the exchange deals with. A configured MAC
// address may be a router's, and packets may come from any router.
bool PortQueue::is_stranger(size_t number, rte_mbuf* mbuf, Nanos now) noexcept {
  using Verdict = SourceWatch::Verdict;
  Neighbour& neighbour = *neighbours_[number];
  SourceWatch& sources = sources_[number];
  const uint64_t mac = frame_source(rte_pktmbuf_mtod(mbuf, const uint8_t*));
  const bool known = mac == sources.believed() || mac == neighbour.mac.load(std::memory_order_relaxed);
  if (!neighbour.configured && (known || claims(neighbour, mac, sources.together(), now))) {
    const Verdict verdict = sources.see(mac, now);
    if (verdict == Verdict::kStranger) return true;
    if (verdict == Verdict::kDuplicateRank) mark_doubled(neighbour, sources, now);
  }
  return now < neighbour.doubled_until.load(std::memory_order_relaxed);
}

void PortQueue::mark_doubled(Neighbour& neighbour, const SourceWatch& watch, Nanos now) noexcept {
  // The two addresses are sorted, so that it is the same failure whichever of them is believed.
  neighbour.sources[0].store(std::min(watch.believed(), watch.stranger()), std::memory_order_relaxed);
  neighbour.sources[1].store(std::max(watch.believed(), watch.stranger()), std::memory_order_relaxed);
  neighbour.doubled_until.store(now + std::max(kDoubledTime, setup_.peer_timeout / kDoubledShare),
                                std::memory_order_relaxed);
}

}  // namespace gradlane
