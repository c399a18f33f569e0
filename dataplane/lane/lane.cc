// lane.cc - packets between an exchange and its neighbours (worker thread only)
#include "dataplane/lane/lane.h"

#include <rte_mbuf.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "collectives/wire.h"
#include "dataplane/device/eal.h"

namespace gradlane {
namespace {

rte_mbuf* mbuf_of(const Packet& packet) noexcept { return static_cast<rte_mbuf*>(packet.handle); }

// Counts, and the sum behind them.
template <class Histogram, size_t kSize>
void publish_times(const Histogram& times, Snapshot<kSize>& to, size_t at) noexcept {
  for (size_t i = 0; i < Histogram::kPlaces; ++i) to.set(at + i, times.counts[i]);
  to.set(at + Histogram::kPlaces, times.sum);
}

template <class Histogram, size_t kSize>
Histogram published_times(const Snapshot<kSize>& from, size_t at) noexcept {
  Histogram times;
  for (size_t i = 0; i < Histogram::kPlaces; ++i) times.counts[i] = from[at + i];
  times.sum = from[at + Histogram::kPlaces];
  return times;
}

}  // namespace

Lane::Lane(const ExchangeConfig& config, const TrainerOpsSetup& setup, PacketPool& pool, LaneDesk& desk)
    : rank_(config.rank),
      pool_(pool),
      desk_(desk),
      exchange_(config, *this),
      ops_(setup, exchange_, desk),
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

void Lane::connect(unsigned rank, PortQueue& queue, const Neighbour& neighbour, const Flow& flow) {
  routes_.at(link_of(rank)) = {rank, &queue, &neighbour, flow, nullptr, 0, 0};
}

void Lane::connect(unsigned rank, Lane& other) {
  routes_.at(link_of(rank)) = {rank, nullptr, nullptr, {}, &other, 0, 0};
  inbox_.resize(inbox_size(++local_links_));
}

// Whoever finds it full sends again.
size_t Lane::inbox_size(size_t links) noexcept {
  constexpr size_t kOfRing = 128;
  constexpr size_t kOfOthers = 32;
  constexpr size_t kRingLinks = 2;
  return links == 0 ? 0 : kRingLinks * kOfRing + (links - std::min(links, kRingLinks)) * kOfOthers;
}

// Packets of such neighbours are dropped where they come in, at once. Here it is said why, and that may take a moment:
// there may be hundreds of them.
void Lane::refuse_doubled(Nanos now) noexcept {
  if (now < doubled_at_) return;
  doubled_at_ = now + kMillisecond;
  for (const Route& it : routes_) {
    if (it.neighbour == nullptr) continue;
    if (const Failure why = doubled_failure(*it.neighbour, it.rank, now)) exchange_.refuse(why);
  }
}

bool Lane::poll(Nanos now) noexcept {
  if (TraceLog* const log = desk_.trace.load(std::memory_order_acquire)) {
    trace_ = exchange_.trace(*log, now) ? log : nullptr;
  }
  refuse_doubled(now);
  bool moved = read_inbox(now);
  moved |= ops_.submit(now);
  if (received_ || moved || now >= exchange_.deadline()) exchange_.poll(now);
  received_ = false;
  moved |= ops_.complete(now);
  if (published_.due(now)) publish();
  return moved;
}

// ---- What other threads read

template <size_t kSize>
void Lane::publish(const Failure& failure, Snapshot<kSize>& to, size_t at) noexcept {
  const uint64_t fields[] = {static_cast<uint64_t>(failure.code), failure.rank, static_cast<uint64_t>(failure.field),
                             failure.ours, failure.theirs};
  static_assert(std::size(fields) == kFailureFields);
  for (size_t i = 0; i < kFailureFields; ++i) to.set(at + i, fields[i]);
}

template <size_t kSize>
Failure Lane::published_failure(const Snapshot<kSize>& from, size_t at) noexcept {
  return {.code = static_cast<FailureCode>(from[at]),
          .rank = static_cast<uint16_t>(from[at + 1]),
          .field = static_cast<Field>(from[at + 2]),
          .ours = from[at + 3],
          .theirs = from[at + 4]};
}

void Lane::publish() noexcept {
  published_.publish(exchange_.counters());
  const RingStatus status = exchange_.ring_status();
  using State = RingSnapshot::State;
  const State state = status.whole ? State::kWhole : status.refused ? State::kRefused : State::kIncomplete;
  ring_.set(0, static_cast<uint64_t>(state));
  ring_.set(1, status.missing);
  publish(status.refused, ring_, 3);
  for (size_t i = 0; i < status.before.size(); ++i) {
    ring_.set(kPastAt + i * kPastFields, status.before[i].until);
    publish(status.before[i].failure, ring_, kPastAt + i * kPastFields + 1);
  }
  publish(status.failed, ring_, 3 + kFailureFields);
  ring_.set(2, exchange_.counters()[Counter::kOperationsFailed]);  // behind its reason
  for (size_t link = 0; link < routes_.size(); ++link) publish_link(link);
  for (size_t i = 0; i < kCodecIds; ++i) {
    codecs_.set(2 * i, exchange_.codec_totals()[i].element_bytes);
    codecs_.set(2 * i + 1, exchange_.codec_totals()[i].run_bytes);
  }
  for (size_t i = 0; i < kStrategyKinds; ++i) publish_times(exchange_.operation_times()[i], times_, i * kTimesFields);
}

AllCodecTotals Lane::codec_totals() const noexcept {
  AllCodecTotals totals;
  for (size_t i = 0; i < kCodecIds; ++i) totals[i] = {codecs_[2 * i], codecs_[2 * i + 1]};
  return totals;
}

OperationTimes Lane::operation_times() const noexcept {
  OperationTimes times;
  for (size_t i = 0; i < times.size(); ++i) times[i] = published_times<OperationHistogram>(times_, i * kTimesFields);
  return times;
}

void Lane::publish_link(size_t link) noexcept {
  const LinkStatus status = exchange_.link_status(link);
  const uint64_t fields[] = {status.up,
                             routes_[link].heard,
                             status.smoothed_rtt,
                             std::bit_cast<uint64_t>(status.window),
                             status.in_flight,
                             routes_[link].tagged,
                             status.waiting_since,
                             status.totals.sent,
                             status.totals.resent,
                             status.totals.bytes,
                             status.totals.full,
                             status.totals.full_bytes};
  static_assert(std::size(fields) == kLinkNumbers);
  for (size_t i = 0; i < std::size(fields); ++i) links_[link].set(i, fields[i]);
  publish(status.refused, links_[link], std::size(fields));
  publish_times(status.totals.rtt, links_[link], std::size(fields) + kFailureFields);
}

LinkSnapshot Lane::link_snapshot(size_t link) const noexcept {
  const Snapshot<kLinkFields>& fields = links_[link];
  return {.rank = routes_[link].rank,
          .up = fields[0] != 0,
          .heard = fields[1],
          .rtt = static_cast<double>(fields[2]),
          .window = std::bit_cast<double>(fields[3]),
          .in_flight = fields[4],
          .refused = published_failure(fields, kLinkNumbers),
          .tagged = fields[5],
          .waiting_since = fields[6],
          .totals = {.sent = fields[7],
                     .resent = fields[8],
                     .bytes = fields[9],
                     .full = fields[10],
                     .full_bytes = fields[11],
                     .rtt = published_times<RttHistogram>(fields, kLinkNumbers + kFailureFields)}};
}

RingSnapshot Lane::ring_snapshot() const noexcept {
  RingSnapshot ring{.state = static_cast<RingSnapshot::State>(ring_[0]),
                    .missing = static_cast<unsigned>(ring_[1]),
                    .refused = published_failure(ring_, 3),
                    .failures = ring_[2],
                    .failed = published_failure(ring_, 3 + kFailureFields),
                    .before = {}};
  for (size_t i = 0; i < ring.before.size(); ++i) {
    const size_t at = kPastAt + i * kPastFields;
    ring.before[i] = {.failure = published_failure(ring_, at + 1), .until = ring_[at]};
  }
  return ring;
}

// ---- Traces

std::unique_ptr<TraceLog> Lane::make_trace(size_t words) const { return exchange_.make_trace(words, clock_now); }

// Before anything has been checked: what is no packet of this protocol's, or another session's, fits nothing else.
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
    // It has come before this, as all of its burst; what comes by another port in the same round is of another rank,
    // and may have been sent since.
    if (!received_ || from != looked_for_) trace_->look_at_clock();
    looked_for_ = from;
    trace_packet(packet, bytes, from, TracePacket::kIn);
  }
  received_ = true;
  Route& route = routes_[link_of_[from]];
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
    const Letter letter = inbox_[inbox_first_];
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
  const bool sent = route.other != nullptr ? route.other->deliver(rank_, packet, bytes)
                                           : route.queue->send(packet, bytes, route.flow, *route.neighbour);
  if (trace_ != nullptr && sent) trace_packet(packet, bytes, rank, 0);
  return sent;
}

size_t Lane::path_bytes(unsigned rank) const noexcept {
  const size_t link = link_of(rank);
  const Neighbour* const neighbour = link < routes_.size() ? routes_[link].neighbour : nullptr;
  return neighbour == nullptr ? 0 : neighbour->path_bytes.load(std::memory_order_relaxed);
}

}  // namespace gradlane
