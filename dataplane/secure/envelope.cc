// envelope.cc - packets in an envelope (worker thread)
#include "dataplane/secure/envelope.h"

#include <cstring>

#include "collectives/wire.h"

namespace gradlane {

std::optional<Envelope> envelope_of(std::span<const uint8_t> payload) noexcept {
  if (payload.size() < kEnvelopeBytes) return std::nullopt;
  const auto envelope = load<Envelope>(payload.data() + payload.size() - kEnvelopeBytes);
  const bool known = envelope.kind == EnvelopeKind::kHello || envelope.kind == EnvelopeKind::kData ||
                     envelope.kind == EnvelopeKind::kProbe;
  if (!known || envelope.reserved != 0 || payload.size() < sealed_bytes(envelope.kind)) return std::nullopt;
  return envelope;
}

PacketCipher::PacketCipher(Security security) : security_(security), gcm_(make_gcm()) {}

void PacketCipher::set_key(const RingKey::LinkKey& key) noexcept {
  const size_t bytes = security_ == Security::kEncrypted128 ? 16 : key.size();
  (void)gcm_->set_key({key.data(), bytes});
}

size_t PacketCipher::seal(const Envelope& envelope, const uint8_t* packet, size_t bytes, uint8_t* out) noexcept {
  const size_t lives = lives_bytes(envelope.kind);
  uint8_t* const end = out + bytes + lives;
  std::memcpy(end, &envelope, sizeof(envelope));
  uint8_t* const tag = end + sizeof(envelope);
  bool sealed = false;
  if (security_ == Security::kAuthenticated) {
    if (bytes != 0) std::memcpy(out, packet, bytes);
    sealed = gcm_->seal(end, {out, bytes + lives}, {}, out, tag);
  } else {
    sealed = gcm_->seal(end, {out + bytes, lives}, {packet, bytes}, out, tag);
  }
  // Nothing is sent in plain text.
  if (!sealed) std::memset(out, 0, bytes + sealed_bytes(envelope.kind));
  return bytes + sealed_bytes(envelope.kind);
}

bool PacketCipher::open(const Envelope& envelope, uint8_t* packet, size_t bytes) noexcept {
  const size_t text = bytes - sealed_bytes(envelope.kind);
  const uint8_t* const end = packet + bytes - kEnvelopeBytes;
  const uint8_t* const tag = end + sizeof(Envelope);
  if (security_ == Security::kAuthenticated) return gcm_->open(end, {packet, bytes - kEnvelopeBytes}, {}, tag);
  return gcm_->open(end, {packet + text, lives_bytes(envelope.kind)}, {packet, text}, tag);
}

LooseCipher::LooseCipher(Security security) : security_(security), cipher_(security), life_(first_life()) {}

size_t LooseCipher::seal_probe(const RingKey& key, const uint8_t* packet, size_t bytes, const LinkEnds& ends,
                               uint8_t* out) noexcept {
  cipher_.set_key(key.link_key(security_, EnvelopeKind::kProbe, life_, {}, ends));
  std::memcpy(out + bytes, life_.data(), life_.size());
  return cipher_.seal({.counter = counter_++, .key = key.id(), .kind = EnvelopeKind::kProbe, .reserved = 0}, packet,
                      bytes, out);
}

std::optional<size_t> LooseCipher::open(const KeyRing& keys, const Envelope& envelope, uint8_t* packet, size_t bytes,
                                        const LinkEnds& ends) noexcept {
  const RingKey* const key = keys.keys().with(envelope.key);
  if (envelope.kind == EnvelopeKind::kData || key == nullptr) return std::nullopt;
  const size_t text = bytes - sealed_bytes(envelope.kind);
  const auto life = load<Life>(packet + text);  // hellos begin with it, too
  cipher_.set_key(key->link_key(security_, envelope.kind, life, {}, ends));
  return cipher_.open(envelope, packet, bytes) ? std::optional(text) : std::nullopt;
}

}  // namespace gradlane
