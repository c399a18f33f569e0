// envelope.h - packets in an envelope, which authenticates and perhaps encrypts them (worker thread)
//
// docs/security.md explains the purpose, and docs/wire-format.md ("Envelope") shows the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "config/config.h"
#include "dataplane/secure/gcm.h"
#include "dataplane/secure/key_ring.h"
#include "dataplane/secure/ring_key.h"

namespace gradlane {

// These bytes follow the packet, before the tag. They are also the nonce of AES-GCM.
struct [[gnu::packed]] Envelope {
  uint64_t counter;  // number of packets that this end has sealed before
  uint16_t key;      // RingKey::id()
  EnvelopeKind kind;
  uint8_t reserved;  // 0
};
static_assert(sizeof(Envelope) == kNonceBytes);

inline constexpr size_t kEnvelopeBytes = sizeof(Envelope) + kGcmTagBytes;
// These bytes are between the packet of a hello and its envelope. They are not encrypted.
struct [[gnu::packed]] Greeting {
  Life from;        // life of the sender
  Life met;         // life of the receiver as the sender knows it; zeros: not known
  uint16_t newest;  // id of the sender's newest key
  uint16_t heard;   // id of the key that the receiver's latest packet used, as the sender knows it
};
// Returns the bytes between the packet and the envelope: a Greeting in hellos, the sender's life in probes.
[[nodiscard]] constexpr size_t lives_bytes(EnvelopeKind kind) noexcept {
  return kind == EnvelopeKind::kHello ? sizeof(Greeting) : kind == EnvelopeKind::kProbe ? sizeof(Life) : 0;
}
// Returns the bytes that a sealed packet has more.
[[nodiscard]] constexpr size_t sealed_bytes(EnvelopeKind kind) noexcept { return lives_bytes(kind) + kEnvelopeBytes; }

// Returns the envelope at the end of a datagram's payload; nothing if these bytes cannot be one.
[[nodiscard]] std::optional<Envelope> envelope_of(std::span<const uint8_t> payload) noexcept;

// Seals and opens packets with one key at a time. Does not allocate.
class PacketCipher {
 public:
  explicit PacketCipher(Security security);  // throws SetupError

  void set_key(const RingKey::LinkKey& key) noexcept;
  // Writes the sealed packet to `out`, where the lives already follow the place of the packet. Returns its length.
  size_t seal(const Envelope& envelope, const uint8_t* packet, size_t bytes, uint8_t* out) noexcept;
  // Opens a packet of `bytes` bytes in place. Returns false if its tag is wrong; its bytes may have changed then.
  [[nodiscard]] bool open(const Envelope& envelope, uint8_t* packet, size_t bytes) noexcept;

 private:
  const Security security_;
  const std::unique_ptr<Gcm> gcm_;
};

// Seals the probes of a port's queue, and opens hellos and probes of any sender that has a right key.
class LooseCipher {
 public:
  explicit LooseCipher(Security security);  // throws SetupError

  // Writes the sealed probe to `out`, and returns its length.
  size_t seal_probe(const RingKey& key, const uint8_t* packet, size_t bytes, const LinkEnds& ends,
                    uint8_t* out) noexcept;
  // Opens a hello or a probe in place, and returns its length without the envelope; nothing if there is no such key, or
  // the tag is wrong.
  [[nodiscard]] std::optional<size_t> open(const KeyRing& keys, const Envelope& envelope, uint8_t* packet, size_t bytes,
                                           const LinkEnds& ends) noexcept;

 private:
  const Security security_;
  PacketCipher cipher_;
  const Life life_;
  uint64_t counter_ = 0;
};

}  // namespace gradlane
