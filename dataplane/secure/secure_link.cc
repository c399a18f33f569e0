// secure_link.cc - one end of a link whose packets are in envelopes (worker thread)
#include "dataplane/secure/secure_link.h"

#include <algorithm>
#include <cstring>

#include "collectives/wire.h"

namespace gradlane {

// ---- Replays

bool ReplayWindow::is_new(uint64_t counter) const noexcept {
  if (counter >= end_) return true;
  return end_ - counter <= kBits && (words_[counter / 64 % kWords] >> counter % 64 & 1) == 0;
}

void ReplayWindow::take(uint64_t counter) noexcept {
  if (counter >= end_) {
    // The words after that of the latest counter are of no use any more.
    const uint64_t latest = end_ == 0 ? 0 : (end_ - 1) / 64;
    const uint64_t steps = std::min<uint64_t>(counter / 64 - latest, kWords);
    for (uint64_t i = 1; i <= steps; ++i) words_[(latest + i) % kWords] = 0;
    end_ = counter + 1;
  }
  words_[counter / 64 % kWords] |= uint64_t{1} << counter % 64;
}

// ---- Sealing

SecureLink::SecureLink(const RingKey& key, Security security, const LinkEnds& ends)
    : key_(key),
      security_(security),
      ends_(ends),
      life_(random_life()),
      sending_(security),
      receiving_(security),
      hellos_(security) {}

size_t SecureLink::seal(const uint8_t* packet, size_t bytes, uint8_t* out) noexcept {
  if (load<LinkHeader>(packet).kind == PacketKind::kHello) return seal_hello(packet, bytes, neighbour_, out);
  if (!known_) return 0;
  return sending_.seal({.counter = counter_++, .key = key_.id(), .kind = EnvelopeKind::kData, .reserved = 0}, packet,
                       bytes, out);
}

size_t SecureLink::seal_hello(const uint8_t* packet, size_t bytes, const Life& met, uint8_t* out) noexcept {
  hellos_.set_key(key_.link_key(security_, EnvelopeKind::kHello, life_, {}, ends_));
  std::memcpy(out + bytes, life_.data(), sizeof(Life));
  std::memcpy(out + bytes + sizeof(Life), met.data(), sizeof(Life));
  return hellos_.seal({.counter = counter_++, .key = key_.id(), .kind = EnvelopeKind::kHello, .reserved = 0}, packet,
                      bytes, out);
}

size_t SecureLink::answer(uint8_t* out, Nanos now) noexcept {
  const Life met = asked_ ? asker_ : neighbour_;
  adopted_ = asked_ = false;
  answered_at_ = now;
  return seal_hello(nullptr, 0, met, out);
}

// ---- Opening

SecureLink::Opened SecureLink::open(const Envelope& envelope, uint8_t* packet, size_t bytes) noexcept {
  if (envelope.key != key_.id() || envelope.kind == EnvelopeKind::kProbe) return {};
  const size_t text = bytes - sealed_bytes(envelope.kind);
  if (envelope.kind == EnvelopeKind::kHello) {
    const auto from = load<Life>(packet + text);
    const auto met = load<Life>(packet + text + sizeof(Life));
    hellos_.set_key(key_.link_key(security_, EnvelopeKind::kHello, from, {}, ends_.reversed()));
    if (!hellos_.open(envelope, packet, bytes)) return {};
    return {judge(from, met, envelope.counter), text};
  }
  if (!known_) return {Verdict::kUnmet, 0};
  if (!window_.is_new(envelope.counter)) return {Verdict::kReplayed, 0};
  if (!receiving_.open(envelope, packet, bytes)) return {};
  window_.take(envelope.counter);
  return {Verdict::kGood, text};
}

SecureLink::Verdict SecureLink::judge(const Life& from, const Life& met, uint64_t counter) noexcept {
  const bool same = known_ && from == neighbour_;
  if (same ? !window_.is_new(counter) : is_retired(from)) return Verdict::kReplayed;
  if (met != life_) {
    asked_ = true;
    asker_ = from;
    return Verdict::kUnmet;
  }
  if (!same) adopt(from);
  window_.take(counter);
  return Verdict::kGood;
}

bool SecureLink::is_retired(const Life& life) const noexcept {
  const auto end = retired_.begin() + static_cast<ptrdiff_t>(std::min(retired_count_, kRetired));
  return std::find(retired_.begin(), end, life) != end;
}

void SecureLink::adopt(const Life& life) noexcept {
  if (known_) retired_[retired_count_++ % kRetired] = neighbour_;
  known_ = adopted_ = true;
  neighbour_ = life;
  window_.reset();
  sending_.set_key(key_.link_key(security_, EnvelopeKind::kData, life_, neighbour_, ends_));
  receiving_.set_key(key_.link_key(security_, EnvelopeKind::kData, neighbour_, life_, ends_.reversed()));
}

}  // namespace gradlane
