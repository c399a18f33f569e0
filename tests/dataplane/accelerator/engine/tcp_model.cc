// tcp_model.cc - a model of TCP connections through an accelerator. Hosts, wire and receivers do at random what TCP
// allows
#include "tests/dataplane/accelerator/engine/tcp_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>

#include "dataplane/accelerator/engine/record.h"

namespace gradlane::accel::test {
namespace {

constexpr size_t kStuck = 1'000'000;  // limit of steps; a connection that reaches it is stuck
// limit of packets in flight, per connection and direction; the model drops more, as networks do
constexpr size_t kOnTheWay = 48;

// Returns floats with magnitudes around the codec's step and above. Rounding changes all bytes of their mantissas.
std::vector<float> some_floats(size_t count, Rng& random) {
  std::vector<float> floats(count);
  for (float& value : floats) {
    const uint32_t exponent = 114 + static_cast<uint32_t>(random.below(14));
    value = std::bit_cast<float>((random.bits() & 0x807fffff) | exponent << 23);
  }
  return floats;
}

}  // namespace

// ---- Box

Box::Box(const Codec& codec, const TcpStreams::Setup& setup, Flaw flaw)
    : codec_(codec), flaw_(flaw), streams_(codec, setup), record_(65536) {}

void Box::restore(size_t record_bytes, std::vector<uint8_t>& payload) {
  std::fill(payload.begin(), payload.end(), uint8_t{0xdb});
  const std::span<const uint8_t> record(record_.data(), record_bytes);
  // If a record cannot be restored, the payload is filled with bytes that tally() counts as mixed floats.
  if (read_record(codec_, record, payload) != RecordFault::kNone) std::fill(payload.begin(), payload.end(), 0xdb);
}

Packet Box::pass(const Segment& segment, std::vector<uint8_t> payload, bool marked) {
  now_ += kMicrosecond;
  const TcpStreams::Decision decision = streams_.from_host(segment, now_);
  if (decision.treatment == TcpStreams::Treatment::kFresh && marked) {
    const unsigned lead = flaw_ == Flaw::kNoLead ? 0 : decision.lead;
    const size_t bytes = write_record(codec_, payload, lead, record_);
    if (bytes != 0 && streams_.remember(decision, segment, {record_.data(), bytes})) restore(bytes, payload);
  } else if (decision.treatment == TcpStreams::Treatment::kSentBefore) {
    const size_t bytes = marked ? streams_.again(decision, segment, record_) : 0;
    if (bytes != 0) {
      restore(bytes, payload);
    } else if (flaw_ != Flaw::kNoOverwrite) {
      static_cast<void>(streams_.overwrite(decision, segment, payload));
    }
  }
  return {segment.seq, segment.flags, std::move(payload)};
}

void Box::acknowledge(const FlowKey& key, uint32_t ack) {
  now_ += kMicrosecond;
  streams_.sweep(now_);
  if (!streams_.any_records()) return;
  if (flaw_ == Flaw::kAcksEarly) ack += 200;
  streams_.from_wire({.key = key.reversed(), .seq = 5000, .ack = ack, .flags = kAck}, now_);
}

Tally& Tally::operator+=(const Tally& other) {
  connections += other.connections;
  floats += other.floats;
  lossy += other.lossy;
  mixed += other.mixed;
  stuck += other.stuck;
  return *this;
}

// ---- Host

Connection::Connection(Box& box, Rng& random, const FlowKey& key, uint32_t isn, size_t bytes)
    : box_(box),
      random_(random),
      key_(key),
      base_(isn + 1),
      most_(std::array<size_t, 3>{60, 250, 1460}[random.below(3)]),
      window_(2000 + random.below(30000)),
      options_(random.one_in(10)),
      exact_(bytes),
      got_(bytes),
      have_(bytes) {
  const std::vector<float> floats = some_floats(bytes / sizeof(float), random);
  for (uint8_t& byte : exact_) byte = static_cast<uint8_t>(random.bits());
  std::ranges::copy(std::as_bytes(std::span(floats)), std::as_writable_bytes(std::span(exact_)).begin());
  std::vector<uint8_t> block(box.codec().max_bytes(floats.size()));
  block.resize(box.codec().encode(floats, block).bytes);
  std::vector<float> decoded(floats.size());
  static_cast<void>(box.codec().decode(block, decoded));
  lossy_ = exact_;
  std::ranges::copy(std::as_bytes(std::span(decoded)), std::as_writable_bytes(std::span(lossy_)).begin());
  open();
}

void Connection::open() {
  const size_t bytes = random_.one_in(8) ? random_.below(std::min(exact_.size(), size_t{100})) : 0;
  for (size_t times = 1 + random_.below(2); times != 0; --times) {
    const auto end = exact_.begin() + static_cast<ptrdiff_t>(bytes);
    pass(base_ - 1, kSyn, {exact_.begin(), end});
  }
  if (random_.one_in(2)) nxt_ = bytes;
  if (!random_.one_in(4)) pass(base_ + static_cast<uint32_t>(nxt_), kAck, {});
}

bool Connection::step() {
  if (++steps_ >= kStuck || random_.one_in(20000)) reset_connection();
  if (broken_ || una_ == exact_.size() + 1) return false;
  switch (random_.below(16)) {
    case 0:
    case 1:
    case 2:
    case 3:
      send_new();
      break;
    case 4:
    case 5:
      send_again_otherwise();
      break;
    case 6:
      send_again_likewise();
      break;
    case 7:
      if (random_.one_in(4)) probe();
      break;
    case 8:
    case 9:
    case 10:
      hear();
      break;
    default:
      deliver();
  }
  return true;
}

size_t Connection::some_bytes(size_t begin) {
  const size_t bytes = random_.one_in(3) ? most_ : 1 + random_.below(most_);
  return std::min(bytes, exact_.size() - begin);
}

void Connection::send_new() {
  if (nxt_ - std::min(una_, nxt_) > window_) return;
  const size_t bytes = some_bytes(nxt_);
  const bool fin = nxt_ + bytes == exact_.size() && (bytes == 0 || random_.one_in(2));
  emit(nxt_, bytes, fin ? kFin : 0);
  nxt_ += bytes;
}

// Sends bytes again with other boundaries: from the middle of a segment, across several segments, or into new bytes.
void Connection::send_again_otherwise() {
  if (una_ >= nxt_) return;
  const size_t begin = random_.one_in(2) ? una_ : una_ + random_.below(nxt_ - una_);
  const size_t bytes = some_bytes(begin);
  const bool fin = begin + bytes == exact_.size() && fin_sent_ && random_.one_in(2);
  emit(begin, bytes, fin ? kFin : 0);
  nxt_ = std::max(nxt_, begin + bytes);
}

void Connection::send_again_likewise() {
  std::erase_if(sent_, [this](const auto& it) { return it.first + it.second <= una_; });
  if (sent_.empty()) return;
  const auto [begin, bytes] = sent_[random_.below(sent_.size())];
  emit(begin, bytes, 0);
}

void Connection::probe() {
  const uint32_t before = base_ + static_cast<uint32_t>(std::min(una_, exact_.size())) - 1;
  switch (random_.below(4)) {
    case 0:
      pass(before, kAck, {});
      break;
    case 1:
      if (una_ > 0) pass(before, kAck, {0xee});  // garbage, which no receiver may accept
      break;
    case 2:
      if (nxt_ < exact_.size()) emit(nxt_, 1, 0);  // a probe of a zero window: one byte, which does not count as sent
      break;
    default:
      pass(base_ + static_cast<uint32_t>(nxt_), kAck, {});
  }
}

void Connection::reset_connection() {
  pass(base_ + static_cast<uint32_t>(nxt_), kRst, {});
  broken_ = true;
}

void Connection::emit(size_t begin, size_t bytes, uint8_t flags) {
  sent_.emplace_back(begin, bytes);
  if ((flags & kFin) != 0) fin_sent_ = true;
  if (random_.one_in(12)) return;  // lost inside the host
  const auto from = exact_.begin() + static_cast<ptrdiff_t>(begin);
  pass(base_ + static_cast<uint32_t>(begin), flags | kAck, {from, from + static_cast<ptrdiff_t>(bytes)});
}

void Connection::pass(uint32_t seq, uint8_t flags, std::vector<uint8_t> payload) {
  if (random_.one_in(100)) flags |= kUrg;
  Segment segment{.key = key_, .seq = seq, .ack = 5000, .flags = flags, .bytes = payload.size()};
  segment.plain = !(options_ && random_.one_in(200));
  if (wire_.size() == kOnTheWay) wire_.erase(wire_.begin() + static_cast<ptrdiff_t>(random_.below(kOnTheWay)));
  wire_.push_back(box_.pass(segment, std::move(payload), !random_.one_in(10)));
}

// ---- Wire and receiver

void Connection::deliver() {
  if (wire_.empty()) return;
  const size_t chosen = random_.one_in(2) ? 0 : random_.below(wire_.size());
  const Packet packet = wire_[chosen];
  if (!random_.one_in(6)) wire_.erase(wire_.begin() + static_cast<ptrdiff_t>(chosen));
  if (!random_.one_in(8)) receive(packet);
}

// Accepts any part of the payload. If it has bytes already and has not acknowledged them, it keeps the old or the new
// copy.
void Connection::receive(const Packet& packet) {
  if ((packet.flags & kRst) != 0) return;
  const auto begin = static_cast<int32_t>(packet.seq + ((packet.flags & kSyn) != 0 ? 1 : 0) - base_);
  const size_t edge = std::min(rcv_ + (random_.one_in(4) ? 1 + random_.below(most_) : window_), exact_.size());
  const bool newest = random_.one_in(2);
  for (size_t i = 0; i < packet.payload.size(); ++i) {
    const auto place = static_cast<size_t>(int64_t{begin} + static_cast<int64_t>(i));
    if (place < rcv_ || place >= edge || (have_[place] != 0 && !newest)) continue;
    got_[place] = packet.payload[i];
    have_[place] = 1;
  }
  const bool at_end = begin + static_cast<int64_t>(packet.payload.size()) == static_cast<int64_t>(exact_.size());
  if ((packet.flags & kFin) != 0 && at_end) fin_received_ = true;
  while (rcv_ < exact_.size() && have_[rcv_] != 0) ++rcv_;
  // A receiver may drop bytes again that only SACK has reported (RFC 2018).
  if (random_.one_in(50)) std::fill(have_.begin() + static_cast<ptrdiff_t>(rcv_), have_.end(), uint8_t{0});
  if (random_.one_in(4) || acks_.size() == kOnTheWay) return;
  acks_.push_back(rcv_ + (rcv_ == exact_.size() && fin_received_ ? 1 : 0));
}

void Connection::hear() {
  if (acks_.empty()) return;
  const size_t chosen = random_.one_in(2) ? 0 : random_.below(acks_.size());
  const size_t ack = acks_[chosen];
  if (!random_.one_in(6)) acks_.erase(acks_.begin() + static_cast<ptrdiff_t>(chosen));
  if (random_.one_in(10)) return;  // lost on the wire
  // At times, an acknowledgement of bytes that were never sent comes first. The accelerator must ignore it, as hosts
  // do.
  if (random_.one_in(40)) box_.acknowledge(key_, base_ + static_cast<uint32_t>(exact_.size() + 70000));
  box_.acknowledge(key_, base_ + static_cast<uint32_t>(ack));
  if (!random_.one_in(6)) una_ = std::max(una_, ack);  // or lost inside the host
}

Tally Connection::tally() const {
  Tally tally{.connections = 1, .stuck = steps_ >= kStuck ? size_t{1} : 0};
  for (size_t at = 0; at < rcv_; at += sizeof(float)) {
    const size_t bytes = std::min(sizeof(float), rcv_ - at);
    ++tally.floats;
    if (std::memcmp(&got_[at], &exact_[at], bytes) == 0) continue;
    ++(std::memcmp(&got_[at], &lossy_[at], bytes) == 0 ? tally.lossy : tally.mixed);
  }
  return tally;
}

Outcome play(const Codec& codec, const Plan& plan, uint64_t seed) {
  Rng random(seed);
  Box box(codec, plan.setup, plan.flaw);
  Outcome outcome;
  std::vector<std::unique_ptr<Connection>> slots(plan.slots);
  size_t begun = 0;
  size_t open = 0;
  while (begun < plan.connections || open != 0) {
    const size_t chosen = random.below(slots.size());
    std::unique_ptr<Connection>& slot = slots[chosen];
    if (!slot) {
      if (begun == plan.connections) continue;
      const FlowKey key{0x0a4d0001, 0x0a4d0002, 5000, static_cast<uint16_t>(40000 + chosen), kTcpProtocol};
      // Half of them start shortly before 2^32, so that their sequence numbers wrap around.
      const uint32_t isn = random.one_in(2) ? random.bits() : ~static_cast<uint32_t>(random.below(20000));
      slot = std::make_unique<Connection>(box, random, key, isn, 1 + random.below(20000));
      ++begun;
      ++open;
    }
    ++outcome.steps;
    if (slot->step()) continue;
    outcome.tally += slot->tally();
    slot.reset();
    --open;
  }
  outcome.records_left = box.streams().records();
  outcome.streams_left = box.streams().streams();
  for_each_counter<StreamFigure>(
      [&](const auto& row) { outcome.figures.push_back(box.streams().figure(row.counter)); });
  return outcome;
}

}  // namespace gradlane::accel::test
