// membership_reports.cc - faults on the paths to neighbours, and the rank that the ring waits for (worker thread,
// seldom)
#include <algorithm>

#include "collectives/diagnosis.h"
#include "collectives/exchange/membership.h"

namespace gradlane {

// Returns whether a fault seen at `at` is recent enough to be reported. Packets are sent again and again, so a fault
// that was not seen lately has been fixed.
bool Membership::lately(Nanos at, Nanos now) const noexcept { return at != 0 && now - at < silence_ / 2; }

void Membership::note_wrong_tos(size_t link, uint8_t tos, Nanos now) noexcept {
  Peer& peer = peers_[link];
  if (now - peer.sent_at >= silence_ / 8) tell(peer, now);
  peer.arrived_tos = tos;
  peer.arrived_at = now;
}

Failure Membership::diagnosis(size_t link, bool heard, Nanos now) const noexcept {
  const Peer& peer = peers_[link];
  const Link& way = links_[link];
  LinkFacts facts{.self = rank_, .peer = way.peer(), .heard = heard, .arrived_tos = {}, .complained_tos = {}};
  if (lately(peer.arrived_at, now)) facts.arrived_tos = peer.arrived_tos;
  if (lately(peer.complained_at, now)) facts.complained_tos = peer.complained_tos;
  if (heard) {
    facts.path_bytes = way.path_bytes();
    const auto ip_bytes = [this](size_t packet) { return std::min(packet, datagram_) + around_; };
    facts.blocked_bytes = ip_bytes(way.stuck_bytes());
    facts.acked_bytes = way.acked_bytes() == 0 ? 0 : ip_bytes(way.acked_bytes());
  }
  return diagnose(facts);
}

unsigned Membership::missing() const noexcept {
  const auto absent = std::ranges::find(peers_, false, &Peer::knows_us);
  if (peers_.size() != ring_links_ && absent != peers_.end()) {
    return links_[static_cast<size_t>(absent - peers_.begin())].peer();
  }
  return (rank_ + world_ - live_prefix_ % world_) % world_;
}

Failure Membership::no_ring() const noexcept {
  Failure failure{.code = FailureCode::kNoRing, .rank = static_cast<uint16_t>(missing())};
  for (size_t i = 0; i < peers_.size() && failure.field == Field::kNone; ++i) {
    const Failure seen = diagnosis(i, lately(peers_[i].complained_at, polled_at_), polled_at_);
    if (seen.field != Field::kArrivedTos) continue;
    failure.field = seen.field;
    failure.ours = seen.ours;
    failure.theirs = seen.theirs;
  }
  return failure;
}

}  // namespace gradlane
