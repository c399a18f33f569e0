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

// ---- Keys

SecureLink::SecureLink(const KeyRing& keys, Security security, const LinkEnds& ends)
    : ring_(keys),
      security_(security),
      ends_(ends),
      life_(first_life()),
      keys_(keys.keys()),
      sending_(security),
      receiving_(security),
      receiving_old_(security),
      hellos_(security) {}

// Loads keys that have changed.
void SecureLink::follow_keys() noexcept {
  if (ring_.version() == keys_.version) return;
  keys_ = ring_.keys();
  if (known_) make_keys();
}

// Returns the newest key that the neighbour is known to have. If nothing is known, returns the newest one.
const RingKey& SecureLink::sending_key() const noexcept {
  if (!known_ || keys_.old == nullptr) return *keys_.newest;
  const uint16_t newest = keys_.newest->id();
  return announced_ == newest || used_ == newest ? *keys_.newest : *keys_.old;
}

// Makes the keys of acknowledgements and data, for the present lives of both ends. The next packet of the neighbour
// gets an answer, which shows it the keys that this end has.
void SecureLink::make_keys() noexcept {
  const RingKey& sending = sending_key();
  const LinkEnds reversed = ends_.reversed();
  sends_ = sending.id();
  sending_.set_key(sending.link_key(security_, EnvelopeKind::kData, life_, neighbour_, ends_));
  receiving_.set_key(keys_.newest->link_key(security_, EnvelopeKind::kData, neighbour_, life_, reversed));
  if (keys_.old != nullptr) {
    receiving_old_.set_key(keys_.old->link_key(security_, EnvelopeKind::kData, neighbour_, life_, reversed));
  }
  keys_changed_ = true;
}

// ---- Sealing

size_t SecureLink::seal(const uint8_t* packet, size_t bytes, uint8_t* out) noexcept {
  follow_keys();
  if (load<LinkHeader>(packet).kind == PacketKind::kHello) {
    return seal_hello(sending_key(), packet, bytes, neighbour_, out);
  }
  if (!known_) return 0;
  return sending_.seal({.counter = counter_++, .key = sends_, .kind = EnvelopeKind::kData, .reserved = 0}, packet,
                       bytes, out);
}

size_t SecureLink::seal_hello(const RingKey& key, const uint8_t* packet, size_t bytes, const Life& met,
                              uint8_t* out) noexcept {
  hellos_.set_key(key.link_key(security_, EnvelopeKind::kHello, life_, {}, ends_));
  const Greeting greeting{.from = life_, .met = met, .newest = keys_.newest->id(), .heard = used_};
  std::memcpy(out + bytes, &greeting, sizeof(greeting));
  return hellos_.seal({.counter = counter_++, .key = key.id(), .kind = EnvelopeKind::kHello, .reserved = 0}, packet,
                      bytes, out);
}

size_t SecureLink::answer(uint8_t* out, Nanos now) noexcept {
  follow_keys();
  answered_at_ = now;
  if (known_ && asker_ == neighbour_) asked_ = false;
  // The neighbour comes first, because the hello of an asker may be a replay.
  if (keys_changed_ || !asked_) {
    keys_changed_ = false;
    return seal_hello(sending_key(), nullptr, 0, neighbour_, out);
  }
  asked_ = false;
  const RingKey* const key = keys_.with(asker_key_);
  return seal_hello(key != nullptr ? *key : sending_key(), nullptr, 0, asker_, out);
}

// ---- Opening

SecureLink::Opened SecureLink::open(const Envelope& envelope, uint8_t* packet, size_t bytes) noexcept {
  follow_keys();
  if (envelope.kind == EnvelopeKind::kHello) return open_hello(envelope, packet, bytes);
  const RingKey* const key = keys_.with(envelope.key);
  if (key == nullptr || envelope.kind == EnvelopeKind::kProbe) return {};
  if (!known_) return {Verdict::kUnmet, 0};
  if (!window_.is_new(envelope.counter)) return {Verdict::kReplayed, 0};
  PacketCipher& cipher = key == keys_.newest ? receiving_ : receiving_old_;
  if (!cipher.open(envelope, packet, bytes)) return {};
  window_.take(envelope.counter);
  note_key(envelope);
  return {Verdict::kGood, bytes - sealed_bytes(envelope.kind)};
}

// Notes which key the neighbour uses. A late packet does not say which one it uses now.
void SecureLink::note_key(const Envelope& envelope) noexcept {
  if (envelope.counter < heard_) return;
  heard_ = envelope.counter;
  if (used_ == envelope.key) return;
  used_ = envelope.key;
  if (sending_key().id() != sends_) make_keys();
}

bool SecureLink::wants_hello() noexcept {
  follow_keys();
  return known_ && used_ != keys_.newest->id();
}

SecureLink::Opened SecureLink::open_hello(const Envelope& envelope, uint8_t* packet, size_t bytes) noexcept {
  const RingKey* const key = keys_.with(envelope.key);
  if (key == nullptr) return {};
  const size_t text = bytes - sealed_bytes(EnvelopeKind::kHello);
  const auto greeting = load<Greeting>(packet + text);
  if (is_replay(greeting, envelope.counter)) return {Verdict::kReplayed, 0};
  hellos_.set_key(key->link_key(security_, EnvelopeKind::kHello, greeting.from, {}, ends_.reversed()));
  if (!hellos_.open(envelope, packet, bytes)) return {};
  return {judge(greeting, envelope), text};
}

bool SecureLink::is_replay(const Greeting& greeting, uint64_t counter) const noexcept {
  if (!known_ || !of_one_start(greeting.from, neighbour_)) return false;
  const uint32_t epoch = epoch_of(greeting.from);
  return epoch < epoch_of(neighbour_) || (epoch == epoch_of(neighbour_) && !window_.is_new(counter));
}

// Judges an authentic hello that is no replay.
SecureLink::Verdict SecureLink::judge(const Greeting& greeting, const Envelope& envelope) noexcept {
  if (greeting.met != life_) {
    asked_ = true;
    asker_ = greeting.from;
    asker_key_ = envelope.key;
    return Verdict::kUnmet;
  }
  // A late hello does not say which keys the neighbour has now.
  const bool same = known_ && greeting.from == neighbour_;
  const bool latest = !same || envelope.counter >= heard_;
  if (latest) {
    heard_ = envelope.counter;
    announced_ = greeting.newest;
    used_ = envelope.key;
  }
  if (!same) {
    adopt(greeting.from);
  } else if (sending_key().id() != sends_) {
    make_keys();
  }
  // The neighbour may not have heard that this end uses its newest key.
  keys_changed_ |= greeting.heard != keys_.newest->id();
  window_.take(envelope.counter);
  return Verdict::kGood;
}

void SecureLink::adopt(const Life& life) noexcept {
  // A restart of the neighbour begins a new epoch, which invalidates earlier hellos.
  if (known_ && !of_one_start(life, neighbour_)) begin_epoch(life_);
  asked_ = false;
  known_ = true;
  neighbour_ = life;
  window_.reset();
  make_keys();
}

}  // namespace gradlane
