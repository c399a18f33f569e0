// lane.cc - packets between an exchange and its neighbours (worker thread only)
#include "dataplane/lane/lane.h"

#include <rte_mbuf.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace gradlane {
namespace {

rte_mbuf* mbuf_of(const Packet& packet) noexcept { return static_cast<rte_mbuf*>(packet.handle); }

}  // namespace

Lane::Lane(const ExchangeConfig& config, const TrainerOpsSetup& setup, PacketPool& pool, LaneDesk& desk)
    : rank_(config.rank), pool_(pool), exchange_(config, *this), ops_(setup, exchange_, desk) {}

Lane::~Lane() {
  for (; inbox_count_ != 0; --inbox_count_) rte_pktmbuf_free(mbuf_of(inbox_[inbox_first_++ % kInbox].packet));
}

void Lane::connect(unsigned rank, PortQueue& queue, const Neighbour& neighbour, const Flow& flow) {
  routes_.at(route_count_++) = {rank, &queue, &neighbour, flow, nullptr, 0, 0};
}

void Lane::connect(unsigned rank, Lane& other) {
  routes_.at(route_count_++) = {rank, nullptr, nullptr, {}, &other, 0, 0};
}

bool Lane::poll(Nanos now) noexcept {
  for (size_t i = 0; i < route_count_; ++i) {
    if (routes_[i].neighbour == nullptr) continue;
    if (const Failure why = doubled_failure(*routes_[i].neighbour, routes_[i].rank, now)) exchange_.refuse(why);
  }
  bool moved = read_inbox(now);
  moved |= ops_.submit(now);
  if (received_ || moved || now >= exchange_.deadline()) exchange_.poll(now);
  received_ = false;
  moved |= ops_.complete(now);
  if (published_.due(now)) publish();
  return moved;
}

void Lane::publish() noexcept {
  published_.publish(exchange_.counters());
  const RingStatus status = exchange_.ring_status();
  using State = RingSnapshot::State;
  const State state = status.whole ? State::kWhole : status.refused ? State::kRefused : State::kIncomplete;
  snapshot_.set(0, static_cast<uint64_t>(state));
  snapshot_.set(1, status.missing);
  publish(status.refused, 3);
  for (size_t i = 0; i < status.before.size(); ++i) {
    snapshot_.set(kPastAt + i * kPastFields, status.before[i].until);
    publish(status.before[i].failure, kPastAt + i * kPastFields + 1);
  }
  publish(status.failed, 3 + kFailureFields);
  snapshot_.set(2, exchange_.counters()[Counter::kOperationsFailed]);  // behind its reason
  for (size_t link = 0; link < route_count_; ++link) publish_link(link);
}

void Lane::publish(const Failure& failure, size_t at) noexcept {
  const uint64_t fields[] = {static_cast<uint64_t>(failure.code), failure.rank, static_cast<uint64_t>(failure.field),
                             failure.ours, failure.theirs};
  static_assert(std::size(fields) == kFailureFields);
  for (size_t i = 0; i < kFailureFields; ++i) snapshot_.set(at + i, fields[i]);
}

Failure Lane::published_failure(size_t at) const noexcept {
  return {.code = static_cast<FailureCode>(snapshot_[at]),
          .rank = static_cast<uint16_t>(snapshot_[at + 1]),
          .field = static_cast<Field>(snapshot_[at + 2]),
          .ours = snapshot_[at + 3],
          .theirs = snapshot_[at + 4]};
}

void Lane::publish_link(size_t link) noexcept {
  const std::span<const unsigned> neighbours = exchange_.neighbours();
  const auto it = std::ranges::find(neighbours, routes_[link].rank);
  if (it == neighbours.end()) return;
  const LinkStatus status = exchange_.link_status(static_cast<size_t>(it - neighbours.begin()));
  const uint64_t fields[] = {status.up,           routes_[link].heard,
                             status.smoothed_rtt, std::bit_cast<uint64_t>(status.window),
                             status.in_flight,    routes_[link].tagged};
  static_assert(std::size(fields) + kFailureFields == kLinkFields);
  const size_t at = kRingFields + link * kLinkFields;
  for (size_t i = 0; i < std::size(fields); ++i) snapshot_.set(at + i, fields[i]);
  publish(status.refused, at + std::size(fields));
}

LinkSnapshot Lane::link_snapshot(size_t link) const noexcept {
  const size_t at = kRingFields + link * kLinkFields;
  const auto field = [&](size_t i) { return snapshot_[at + i]; };
  return {.rank = routes_[link].rank,
          .up = field(0) != 0,
          .heard = field(1),
          .rtt = static_cast<double>(field(2)),
          .window = std::bit_cast<double>(field(3)),
          .in_flight = field(4),
          .refused = published_failure(at + 6),
          .tagged = field(5)};
}

RingSnapshot Lane::ring_snapshot() const noexcept {
  RingSnapshot ring{.state = static_cast<RingSnapshot::State>(snapshot_[0]),
                    .missing = static_cast<unsigned>(snapshot_[1]),
                    .refused = published_failure(3),
                    .failures = snapshot_[2],
                    .failed = published_failure(3 + kFailureFields),
                    .before = {}};
  for (size_t i = 0; i < ring.before.size(); ++i) {
    const size_t at = kPastAt + i * kPastFields;
    ring.before[i] = {.failure = published_failure(at + 1), .until = snapshot_[at]};
  }
  return ring;
}

void Lane::receive(unsigned from, const Packet& packet, size_t bytes, Nanos now) noexcept {
  received_ = true;
  Route& route = routes_[from == routes_[0].rank ? 0 : 1];
  route.heard = now;
  const uint64_t damaged = exchange_.counters()[Counter::kBadCrc];
  if (exchange_.receive(from, packet, bytes, now)) return;
  // To who has no key, a packet with a tag is one with something behind it.
  const bool tagged = exchange_.counters()[Counter::kBadCrc] != damaged && bytes > kAuthBytes;
  if (tagged && is_whole({packet.data, bytes - kAuthBytes})) ++route.tagged;
  rte_pktmbuf_free(mbuf_of(packet));
}

// ---- Between ranks of this node

bool Lane::deliver(unsigned from, const Packet& packet, size_t bytes) noexcept {
  if (inbox_count_ == kInbox) return false;
  rte_mbuf* const copy = pool_.allocate();
  if (copy == nullptr) return false;
  const Packet letter = fresh_packet(copy);
  std::memcpy(letter.data, packet.data, bytes);
  inbox_[(inbox_first_ + inbox_count_++) % kInbox] = {from, letter, bytes};
  return true;
}

bool Lane::read_inbox(Nanos now) noexcept {
  const size_t count = inbox_count_;
  for (size_t i = 0; i < count; ++i) {
    const Letter letter = inbox_[inbox_first_];
    inbox_first_ = (inbox_first_ + 1) % kInbox;
    --inbox_count_;
    receive(letter.from, letter.packet, letter.bytes, now);
  }
  return count != 0;
}

// ---- PacketIo

Packet Lane::allocate() noexcept {
  rte_mbuf* const mbuf = pool_.allocate();
  return mbuf == nullptr ? Packet{} : fresh_packet(mbuf);
}

void Lane::release(Packet packet) noexcept { rte_pktmbuf_free(mbuf_of(packet)); }

bool Lane::transmit(unsigned rank, Packet packet, size_t bytes) noexcept {
  Route* const route =
      std::find_if(routes_.data(), routes_.data() + route_count_, [rank](const Route& it) { return it.rank == rank; });
  if (route == routes_.data() + route_count_) return false;
  if (route->other != nullptr) return route->other->deliver(rank_, packet, bytes);
  return route->queue->send(packet, bytes, route->flow, *route->neighbour);
}

}  // namespace gradlane
