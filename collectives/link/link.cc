// link.cc - sequence numbers, acknowledgements, loss recovery of one link (packet path)
#include "collectives/link/link.h"

#include <algorithm>
#include <bit>

#include "collectives/crc32c.h"

namespace gradlane {
namespace {

// a packet is lost if one that was transmitted this many transmissions later has arrived
constexpr uint64_t kReordering = 3;
constexpr Nanos kMaxAckDelay = 25 * kMicrosecond;
constexpr unsigned kMaxBackoff = 10;
// time to the next try after a packet could not be sent, or no buffer was free
constexpr Nanos kRetry = 10 * kMicrosecond;
// Retransmissions after which a packet counts as stuck. At any usual loss rate, one of them arrives.
constexpr unsigned kStuck = 8;

uint32_t stamp_of(Nanos now) { return static_cast<uint32_t>(now >> kStampShift) | 1; }

}  // namespace

Link::Link(const ExchangeConfig& config, size_t window, unsigned peer, PacketIo& io, Counters& counters)
    : io_(io),
      counters_(counters),
      peer_(peer),
      keep_alive_(config.peer_timeout / 16),
      max_rto_(config.peer_timeout / 16),
      min_rto_(config.min_rto),
      queue_target_(config.queue_target),
      segments_(config.segments),
      part_(std::max<size_t>(config.mtu / config.segments, 1)),
      most_ack_every_(config.ack_every),
      table_(window),
      rtt_(min_rto_, max_rto_),
      congestion_(table_.size(), queue_target_, segments_),
      received_(window) {}

void Link::reset(uint64_t session) noexcept {
  for (Slot& each : table_) {
    if (each.packet) io_.release(each.packet);
    each = Slot{};
  }
  if (spare_) io_.release(spare_);
  spare_ = {};
  session_ = session;
  up_ = false;
  unacked_ = next_ = limit_ = 0;
  in_flight_ = waiting_ = 0;
  transmissions_ = newest_arrived_ = 0;
  backoff_ = 0;
  expire_at_ = probe_at_ = kNever;
  probe_ = 0;
  limited_ = false;
  congestion_ = CongestionWindow(table_.size(), queue_target_, segments_);
  return_queue_ = {};
  received_.reset();
  credit_ = 0;
  ack_every_ = most_ack_every_;
  unacknowledged_ = 0;
  ack_now_ = false;
  ack_at_ = kNever;
  latest_fields_ = {};
  stamp_ = 0;
  stuck_at_ = 0;
  acked_bytes_ = 0;
}

void Link::set_up(Nanos now) noexcept {
  if (up_) return;
  up_ = true;
  heard_at_ = now;
  // Only the smallest window is certain until the first acknowledgement reports the neighbour's window.
  limit_ = next_ + static_cast<uint32_t>(kMinWindow);
}

void Link::count_stall() noexcept {
  limited_ = true;
  const bool credit = up_ && static_cast<int32_t>(limit_ - next_) <= 1;
  counters_.add(credit ? Counter::kCreditStall : Counter::kWindowStall);
}

// ---- Sending.

void Link::send(Packet packet, size_t bytes, uint32_t payload_crc, Nanos now) noexcept {
  if (unacked_ == next_) {
    stuck_at_ = now;
    acked_bytes_ = 0;
  }
  const uint32_t sequence = next_++;
  slot(sequence) = {packet, now, 0, payload_crc, static_cast<uint16_t>(bytes), State::kUnsent, 0};
  ++waiting_;
  transmit(sequence, now);
}

// Sends a packet that waits: for the first time, or again.
void Link::transmit(uint32_t sequence, Nanos now) noexcept {
  Slot& it = slot(sequence);
  const Nanos sent_before = sent_at_;
  if (!ensure_free_buffer(it) || !emit(it.packet, it.bytes, PacketKind::kData, sequence, it.payload_crc, now)) {
    counters_.add(Counter::kTransmitBusy);
    retry_at_ = now + kRetry;
    return;
  }
  switch (it.state) {
    case State::kLostSack:
      counters_.add(Counter::kRetransmitSack);
      ++totals_.resent;
      it.again = static_cast<uint8_t>(std::min(it.again + 1U, kStuck));
      break;
    case State::kLostTimeout:
      counters_.add(Counter::kRetransmitTimeout);
      ++totals_.resent;
      it.again = static_cast<uint8_t>(std::min(it.again + 1U, kStuck));
      break;
    default:
      counters_.add(Counter::kDataSent);
      ++totals_.sent;
  }
  // Many retransmissions of one packet are no sign of life: they may get lost, too. Otherwise no keep-alives would be
  // sent while long packets exceed the path's MTU, and the neighbour would take this rank for silent.
  if (it.again >= kStuck / 2) sent_at_ = sent_before;
  counters_.add(Counter::kDataBytes, it.bytes);
  totals_.bytes += it.bytes;
  it.state = State::kInFlight;
  it.sent_at = now;
  it.transmission = ++transmissions_;
  --waiting_;
  ++in_flight_;
  if (expire_at_ == kNever) expire_at_ = now + rtt_.timeout(backoff_);
  if (probe_ == 0) probe_at_ = now + rtt_.probe_timeout();
}

// Moves a packet that is sent again to another buffer, if hardware still reads its present one. Returns false if no
// buffer is free.
bool Link::ensure_free_buffer(Slot& it) noexcept {
  if (it.state == State::kUnsent || !io_.is_read(peer_, it.packet)) return true;
  const Packet copy = io_.allocate();
  if (!copy) return false;
  std::copy_n(it.packet.data + sizeof(LinkHeader), it.bytes - sizeof(LinkHeader), copy.data + sizeof(LinkHeader));
  io_.release(it.packet);
  it.packet = copy;
  return true;
}

bool Link::emit(Packet packet, size_t bytes, PacketKind kind, uint32_t sequence, uint32_t payload_crc,
                Nanos now) noexcept {
  // Writes the LinkHeader in whole words (docs/wire-format.md).
  const ReceiveWindow::Sack sack = received_.sack();
  const auto credit = static_cast<uint16_t>(std::min<uint32_t>(received_.size(), 0xffff));
  uint32_t echo = 0;
  if (stamp_ != 0) echo = (stamp_ + static_cast<uint32_t>((now - stamped_at_) >> kStampShift)) | 1;
  const HeaderWords words = {
      kMagic | kProtocolVersion << 16 | static_cast<uint64_t>(kind) << 24 | uint64_t{sequence} << 32,
      session_,
      sack.bits,
      received_.next() | uint64_t{credit} << 32 | uint64_t{sack.from} << 48,
      stamp_of(now) | uint64_t{echo} << 32,
  };
  static_assert(sizeof(words) == kCrcOffset);
  store(packet.data, words);
  store(packet.data + kCrcOffset, ~crc32c(payload_crc, words));
  if (!io_.transmit(peer_, packet, bytes)) return false;
  sent_at_ = now;
  retry_at_ = 0;
  unacknowledged_ = 0;
  ack_now_ = false;
  ack_at_ = kNever;
  return true;
}

bool Link::send_bare(PacketKind kind, std::span<const uint8_t> payload, Nanos now) noexcept {
  Packet packet = io_.allocate();
  const bool own = !packet;
  if (own) packet = spare_;
  if (!packet) {
    counters_.add(Counter::kNoBuffer);
    retry_at_ = now + kRetry;
    return false;
  }
  uint8_t* const behind = packet.data + sizeof(LinkHeader);
  std::copy(payload.begin(), payload.end(), behind);
  const size_t bytes = sizeof(LinkHeader) + payload.size();
  const bool sent = emit(packet, bytes, kind, next_, crc32c(kCrcStart, behind, payload.size()), now);
  if (own) {
    counters_.add(Counter::kNoBuffer);
  } else if (!spare_ && up_) {
    spare_ = packet;
  } else {
    io_.release(packet);
  }
  if (sent) {
    counters_.add(kind == PacketKind::kHello ? Counter::kHelloSent : Counter::kAckSent);
    counters_.add(Counter::kControlBytes, bytes);
  } else {
    counters_.add(Counter::kTransmitBusy);
    retry_at_ = now + kRetry;
  }
  return sent;
}

// ---- Receiving.

void Link::accept(const LinkHeader& header) noexcept {
  ack_now_ |= header.sequence != received_.next();  // a packet is missing
  received_.accept(header.sequence);
  if (++unacknowledged_ == 1) {
    const Nanos delay = rtt_.known() ? std::min(rtt_.smoothed() / 8, kMaxAckDelay) : 0;
    ack_at_ = heard_at_ + delay;
  }
}

void Link::send_missing(const MissingSegments& report, Nanos now) noexcept {
  if (report.sequence - unacked_ >= next_ - unacked_) return;
  Slot& it = slot(report.sequence);
  // A report that came sooner is about an earlier transmission, or about segments that are still on a slow path.
  const Nanos soonest = report.overdue ? rtt_.usual() : rtt_.least();
  if (it.state != State::kInFlight || now - it.sent_at < soonest) return;
  lose(it, State::kLostSack);
  const size_t segments = segments_of(it);
  congestion_.lost(segments - std::min<size_t>(segments, static_cast<size_t>(std::popcount(report.arrived))));
}

void Link::acknowledge(const LinkHeader& header, Nanos now) noexcept {
  static_assert(offsetof(LinkHeader, sack) + sizeof(latest_fields_) == kCrcOffset);
  const auto fields =
      load<decltype(latest_fields_)>(reinterpret_cast<const uint8_t*>(&header) + offsetof(LinkHeader, sack));
  // Packets that were sent in one poll and arrived in one burst have the same fields. Only the first is processed.
  if (fields == latest_fields_ && now == heard_at_) return;
  latest_fields_ = fields;
  heard_at_ = now;
  // A packet that comes late, or was completed by a retransmission, has an earlier stamp than others before it.
  if (stamp_ == 0 || static_cast<int32_t>(header.stamp - stamp_) >= 0) {
    stamp_ = header.stamp;
    stamped_at_ = now;
  }

  const uint32_t sent = next_ - unacked_;
  const uint32_t acked = header.ack - unacked_;
  if (static_cast<int32_t>(acked) < 0) return;  // an old packet that arrives late
  const uint64_t sack = header.sack;
  const uint32_t first = header.ack + 1 + header.sack_from;
  const uint32_t end = sack == 0 ? header.ack : first + 64 - static_cast<uint32_t>(std::countl_zero(sack));
  if (acked > sent || end - unacked_ > sent) {
    counters_.add(Counter::kBadAck);
    return;
  }

  const size_t before = in_flight_ + waiting_;
  const bool limited = limited_ || in_flight() >= congestion_.packets();
  if (acked != 0) {
    stuck_at_ = now;
    acked_bytes_ = 0;
  }
  for (; unacked_ != header.ack; ++unacked_) {
    Slot& it = slot(unacked_);
    if (it.state != State::kArrived) arrived(it);
    it.state = State::kFree;
  }
  for (uint64_t rest = sack; rest != 0; rest &= rest - 1) {
    Slot& it = slot(first + static_cast<uint32_t>(std::countr_zero(rest)));
    if (it.state != State::kArrived) arrived(it);
  }
  const uint32_t limit = header.ack + header.credit;
  if (static_cast<int32_t>(limit - limit_) > 0) limit_ = limit;
  if (header.credit != credit_) set_credit(header.credit);

  const size_t news = before - in_flight_ - waiting_;
  if (news != 0) {
    backoff_ = 0;
    // Packets that were sent before the probe, and are not acknowledged now, are lost.
    if (probe_ != 0) newest_arrived_ = std::max(newest_arrived_, probe_ + kReordering - 1);
    probe_ = 0;
    probe_at_ = in_flight_ == 0 ? kNever : now + rtt_.probe_timeout();
  }
  if (sack != 0 && news != 0) find_lost(end);
  if (in_flight_ == 0) expire_at_ = kNever;
  limited_ = limited;
  if (header.echo != 0) sample_rtt(header, news, now);
  limited_ = false;
}

// Notes the neighbour's window and derives how often to acknowledge. The neighbour has no more packets in flight than
// this side accepts, and no more than its own table holds.
void Link::set_credit(uint16_t credit) noexcept {
  credit_ = credit;
  const size_t window = std::min<size_t>(credit, received_.size());
  ack_every_ = static_cast<unsigned>(std::clamp<size_t>(window / 4, 1, most_ack_every_));
}

void Link::sample_rtt(const LinkHeader& header, size_t acked, Nanos now) noexcept {
  const uint32_t stamps = stamp_of(now) - header.echo;
  if (static_cast<int32_t>(stamps) < 0) return;
  const Nanos rtt = std::max<Nanos>(Nanos{stamps} << kStampShift, 1);
  rtt_.sample(rtt, now);
  totals_.rtt.add(rtt);
  const Nanos wait = Nanos{return_queue_.sample(stamp_of(now), header.stamp, now)} << kStampShift;
  const Nanos there = rtt > wait ? std::max(rtt - wait, rtt_.least()) : rtt_.least();
  if (acked != 0) congestion_.acknowledged(acked, there, rtt_.least(), unacked_, next_, limited_);
}

// Marks a packet as received by the neighbour, and releases its buffer.
void Link::arrived(Slot& it) noexcept {
  if (it.state == State::kInFlight) {
    --in_flight_;
    if (it.again == 0) newest_arrived_ = std::max(newest_arrived_, it.transmission);
  } else {
    --waiting_;
  }
  io_.release(it.packet);
  it.packet = {};
  it.state = State::kArrived;
  acked_bytes_ = std::max<size_t>(acked_bytes_, it.bytes);
}

void Link::lose(Slot& it, State reason) noexcept {
  it.state = reason;
  --in_flight_;
  ++waiting_;
}

// Marks as lost those packets before `end` that were transmitted long enough before one that has arrived (kReordering).
void Link::find_lost(uint32_t end) noexcept {
  size_t lost = 0;
  for (uint32_t sequence = unacked_; sequence != end; ++sequence) {
    Slot& it = slot(sequence);
    if (it.state != State::kInFlight || it.transmission + kReordering > newest_arrived_) continue;
    lose(it, State::kLostSack);
    lost += segments_of(it);
  }
  congestion_.lost(lost);
}

// ---- Time.

Nanos Link::stuck_since() const noexcept {
  if (!up_ || unacked_ == next_ || table_[unacked_ & (table_.size() - 1)].again < kStuck) return kNever;
  return stuck_at_;
}

void Link::poll(Nanos now) noexcept {
  if (now >= expire_at_) expire(now);
  if (now >= probe_at_) probe(now);
  if (waiting_ == 0) return;
  const size_t window = congestion_.packets();
  size_t budget = window > in_flight_ ? window - in_flight_ : 0;
  // The oldest packet goes in any case, because everything may depend on it.
  const State oldest = slot(unacked_).state;
  if (oldest != State::kInFlight && oldest != State::kArrived) budget = std::max<size_t>(budget, 1);
  for (uint32_t sequence = unacked_; sequence != next_ && budget != 0 && waiting_ != 0; ++sequence) {
    const State state = slot(sequence).state;
    if (state == State::kInFlight || state == State::kArrived) continue;
    const size_t before = waiting_;
    transmit(sequence, now);
    if (waiting_ == before) return;  // the owner is busy
    --budget;
  }
}

// Marks packets as lost that have been in flight for the timeout. The timer is set for the oldest of the others. So it
// fires about once per timeout, and not once per packet.
void Link::expire(Nanos now) noexcept {
  const Nanos timeout = rtt_.timeout(backoff_);
  Nanos oldest = kNever;
  size_t lost = 0;
  for (uint32_t sequence = unacked_; sequence != next_; ++sequence) {
    Slot& it = slot(sequence);
    if (it.state != State::kInFlight) continue;
    if (it.sent_at + timeout <= now) {
      lose(it, State::kLostTimeout);
      ++lost;
    } else {
      oldest = std::min(oldest, it.sent_at);
    }
  }
  if (lost != 0) {
    congestion_.timed_out(backoff_);
    backoff_ = std::min(backoff_ + 1, kMaxBackoff);
  }
  expire_at_ = oldest == kNever ? kNever : oldest + rtt_.timeout(backoff_);
}

void Link::probe(Nanos now) noexcept {
  probe_at_ = kNever;
  for (uint32_t sequence = next_; sequence-- != unacked_;) {
    Slot& it = slot(sequence);
    if (it.state != State::kInFlight) continue;
    lose(it, State::kLostTimeout);
    probe_ = transmissions_ + 1;
    transmit(sequence, now);
    return;
  }
}

// Counts the time after the previous call as full if the link was full at that call.
void Link::count_full(Nanos now) noexcept {
  if (full_) {
    totals_.full += now - looked_at_;
    totals_.full_bytes += totals_.bytes - looked_bytes_;
  }
  full_ = up_ && !can_send();
  looked_at_ = now;
  looked_bytes_ = totals_.bytes;
}

void Link::flush(Nanos now) noexcept {
  count_full(now);
  if (!up_) return;
  const bool due = ack_now_ || unacknowledged_ >= ack_every_ || now >= ack_at_;
  if (due || now - sent_at_ >= keep_alive_) send_bare(PacketKind::kAck, {}, now);
}

Nanos Link::deadline() const noexcept {
  if (!up_) return kNever;
  const State oldest = table_[unacked_ & (table_.size() - 1)].state;
  const bool resend = oldest != State::kInFlight && oldest != State::kArrived;
  const bool unsent = waiting_ != 0 && (resend || in_flight_ < congestion_.packets());
  if (unsent || ack_now_ || unacknowledged_ >= ack_every_) return retry_at_;
  return std::max(std::min({expire_at_, probe_at_, ack_at_, sent_at_ + keep_alive_}), retry_at_);
}

}  // namespace gradlane
