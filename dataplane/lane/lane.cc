// lane.cc - packets between an exchange and its neighbours (worker thread only)
#include "dataplane/lane/lane.h"

#include <rte_mbuf.h>

#include <algorithm>
#include <cstring>

#include "collectives/wire.h"
#include "dataplane/device/eal.h"

namespace gradlane {
namespace {

rte_mbuf* mbuf_of(const Packet& packet) noexcept { return static_cast<rte_mbuf*>(packet.handle); }

}  // namespace

Lane::Lane(const ExchangeConfig& config, const TrainerOpsSetup& setup, PacketPool& pool, ControlChannel& channel)
    : rank_(config.rank),
      pool_(pool),
      channel_(channel),
      exchange_(config, *this),
      ops_(setup, exchange_, channel),
      links_(exchange_.neighbours().size()) {
  routes_.resize(links_.size());
  link_of_.fill(kNoLink);
  for (size_t i = 0; i < routes_.size(); ++i) {
    routes_[i].rank = exchange_.neighbours()[i];
    link_of_.at(routes_[i].rank) = static_cast<uint8_t>(i);
  }
}

Lane::~Lane() {
  for (; inbox_count_ != 0; --inbox_count_) rte_pktmbuf_free(mbuf_of(inbox_[inbox_first_++ % inbox_.size()].packet));
}

void Lane::connect(unsigned rank, PortQueue& queue, const Neighbour& neighbour, const Flow& flow,
                   std::unique_ptr<SecureLink> secure) {
  routes_.at(link_of(rank)) = {rank, &queue, &neighbour, flow, nullptr, std::move(secure), 0, 0};
}

void Lane::connect(unsigned rank, Lane& other) {
  routes_.at(link_of(rank)) = {rank, nullptr, nullptr, {}, &other, nullptr, 0, 0};
  inbox_.resize(inbox_size(++local_links_));
}

// A rank whose packet finds the inbox full sends it again later.
size_t Lane::inbox_size(size_t links) noexcept {
  constexpr size_t kOfRing = 128;
  constexpr size_t kOfOthers = 32;
  constexpr size_t kRingLinks = 2;
  return links == 0 ? 0 : kRingLinks * kOfRing + (links - std::min(links, kRingLinks)) * kOfOthers;
}

// Tells the exchange which neighbours are two machines. Their packets are dropped on arrival in any case. The exchange
// learns the reason up to 1 ms later, because there may be hundreds of neighbours to check.
void Lane::refuse_doubled(Nanos now) noexcept {
  if (now < doubled_at_) return;
  doubled_at_ = now + kMillisecond;
  for (const Route& it : routes_) {
    if (it.neighbour == nullptr) continue;
    if (const Failure why = doubled_failure(*it.neighbour, it.rank, now)) exchange_.refuse(why);
  }
}

bool Lane::poll(Nanos now) noexcept {
  if (TraceLog* const log = channel_.trace.load(std::memory_order_acquire)) {
    trace_ = exchange_.trace(*log, now) ? log : nullptr;
  }
  refuse_doubled(now);
  bool moved = read_inbox(now);
  moved |= ops_.submit(now);
  if (received_ || moved || now >= exchange_.deadline()) exchange_.poll(now);
  received_ = false;
  moved |= ops_.complete(now);
  if (published_.due(now)) {
    publish();
    tell_keys(now);
  }
  return moved;
}

// ---- Figures for other threads

void Lane::publish() noexcept {
  published_.publish(exchange_.counters());
  const RingStatus status = exchange_.ring_status();
  using State = RingSnapshot::State;
  ring_.write({.state = status.ready     ? State::kReady
                        : status.refused ? State::kRefused
                                         : State::kIncomplete,
               .missing = status.missing,
               .refused = status.refused,
               .failures = exchange_.counters()[Counter::kOperationsFailed],
               .failed = status.failed,
               .before = status.before});
  for (size_t link = 0; link < routes_.size(); ++link) {
    const Route& route = routes_[link];
    links_[link].write({exchange_.link_status(link), route.heard, route.tagged,
                        route.secure == nullptr ? std::nullopt : route.secure->neighbour_key()});
  }
  codecs_.write(exchange_.codec_totals());
  times_.write(exchange_.operation_times());
}

// Tells neighbours that do not use the newest key that this node has it.
void Lane::tell_keys(Nanos now) noexcept {
  for (Route& it : routes_) {
    if (it.secure && it.secure->wants_hello()) it.queue->send_hello(*it.secure, it.flow, *it.neighbour, now);
  }
}

// ---- Traces

std::unique_ptr<TraceLog> Lane::make_trace(size_t words) const { return exchange_.make_trace(words, clock_now); }

// Records a packet. Only its magic has been checked so far. A damaged packet, or one of another session, will not match
// any other record.
void Lane::trace_packet(const Packet& packet, size_t bytes, unsigned rank, uint64_t flags) noexcept {
  if (bytes < sizeof(LinkHeader)) return;
  const auto header = load<LinkHeader>(packet.data);
  if (header.magic != kMagic) return;
  if (header.kind != PacketKind::kData || header.sequence % TraceLog::kPacketEvery != 0) return;
  trace_->packet({.session = header.session,
                  .what = flags | uint64_t{rank} << 8 | uint64_t{header.sequence} << 32,
                  .bytes = bytes,
                  .at = trace_->now()});
}

void Lane::receive(unsigned from, const Packet& packet, size_t bytes, Nanos now) noexcept {
  if (trace_ != nullptr) {
    // This clock reading serves all packets of a burst, which have all arrived by now. A packet of another rank may
    // have come by another port in the same round, and may have been sent after the reading. So it gets a new one.
    if (!received_ || from != looked_for_) trace_->look_at_clock();
    looked_for_ = from;
    trace_packet(packet, bytes, from, TracePacket::kIn);
  }
  received_ = true;
  Route& route = routes_[link_of_[from]];
  route.heard = now;
  const uint64_t damaged = exchange_.counters()[Counter::kBadCrc] + exchange_.counters()[Counter::kBadMagic];
  if (exchange_.receive(from, packet, bytes, now)) return;
  // A node without a key cannot read a packet with a tag.
  if (exchange_.counters()[Counter::kBadCrc] + exchange_.counters()[Counter::kBadMagic] != damaged &&
      route.secure == nullptr && envelope_of({packet.data, bytes})) {
    ++route.tagged;
  }
  rte_pktmbuf_free(mbuf_of(packet));
}

// ---- Between ranks of this node

bool Lane::deliver(unsigned from, const Packet& packet, size_t bytes) noexcept {
  if (inbox_count_ == inbox_.size()) return false;
  rte_mbuf* const copy = pool_.allocate();
  if (copy == nullptr) return false;
  const Packet letter = fresh_packet(copy);
  std::memcpy(letter.data, packet.data, bytes);
  inbox_[(inbox_first_ + inbox_count_++) % inbox_.size()] = {from, letter, bytes};
  return true;
}

bool Lane::read_inbox(Nanos now) noexcept {
  const size_t count = inbox_count_;
  for (size_t i = 0; i < count; ++i) {
    const InboxPacket letter = inbox_[inbox_first_];
    inbox_first_ = (inbox_first_ + 1) % inbox_.size();
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
  const size_t link = link_of(rank);
  if (link >= routes_.size()) return false;
  Route& route = routes_[link];
  const bool sent = route.other != nullptr
                        ? route.other->deliver(rank_, packet, bytes)
                        : route.queue->send(packet, bytes, route.flow, *route.neighbour, route.secure.get());
  if (trace_ != nullptr && sent) trace_packet(packet, bytes, rank, 0);
  return sent;
}

bool Lane::is_read(unsigned rank, Packet packet) const noexcept {
  const size_t link = link_of(rank);
  const Route* const route = link < routes_.size() ? &routes_[link] : nullptr;
  return route != nullptr && route->queue != nullptr && route->queue->is_read(mbuf_of(packet));
}

size_t Lane::path_bytes(unsigned rank) const noexcept {
  const size_t link = link_of(rank);
  const Neighbour* const neighbour = link < routes_.size() ? routes_[link].neighbour : nullptr;
  return neighbour == nullptr ? 0 : neighbour->path_bytes.load(std::memory_order_relaxed);
}

}  // namespace gradlane
