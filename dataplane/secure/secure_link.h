// secure_link.h - one end of a link whose packets are in envelopes: keys, counters and replays (worker thread)
//
// Each end chooses a random life when it is made, and says in its hellos which life of the other end it knows. A hello
// that knows our life is fresh: nobody could have recorded it before. Then its sender's life is adopted, and both lives
// make the keys of all other packets. If the neighbour has restarted, our own life gets a new epoch.
// So earlier hellos, which knew the epoch before, never count again.
//
// Keys of the ring may change meanwhile. An end opens packets with each key that it has, and seals them with its newest
// one as soon as the neighbour has said or shown that it has that, too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/time.h"
#include "dataplane/secure/envelope.h"

namespace gradlane {

// Notes which counters have arrived (RFC 6479).
class ReplayWindow {
 public:
  static constexpr size_t kBits = 8192;

  // Returns whether this counter is new, and less than kBits before the latest.
  [[nodiscard]] bool is_new(uint64_t counter) const noexcept;
  void take(uint64_t counter) noexcept;
  void reset() noexcept { *this = {}; }

 private:
  static constexpr size_t kWords = kBits / 64 + 1;
  std::array<uint64_t, kWords> words_{};
  uint64_t end_ = 0;  // one more than the latest counter
};

class SecureLink {
 public:
  // `ends` are those of the packets that this end sends. `keys` must outlive the link. Throws SetupError.
  SecureLink(const KeyRing& keys, Security security, const LinkEnds& ends);

  // Writes the sealed packet, a link header and what follows it, to `out`. Returns its length, or 0 if the neighbour's
  // life is not known; hellos are always sealed. `out` needs space for sealed_bytes(kHello) more bytes than the packet
  // has.
  [[nodiscard]] size_t seal(const uint8_t* packet, size_t bytes, uint8_t* out) noexcept;

  enum class Verdict : uint8_t {
    kGood,
    kUnmet,     // authentic, but its sender did not know our life, or we did not know its life
    kReplayed,  // arrived before, is too old, or is a hello of an earlier epoch
    kForged,
  };
  struct Opened {
    Verdict verdict = Verdict::kForged;
    size_t bytes = 0;  // of the packet without its envelope; 0: it was a hello without a packet
  };
  // Opens a packet of `bytes` bytes in place.
  [[nodiscard]] Opened open(const Envelope& envelope, uint8_t* packet, size_t bytes) noexcept;

  // Returns whether answer() should be sent now, because the neighbour does not know our life or our newest key. Called
  // after each open(). wants_hello() is for a timer: answers may get lost.
  [[nodiscard]] bool needs_answer(Nanos now) const noexcept {
    return keys_changed_ || (asked_ && now - answered_at_ >= kAnswerEvery);
  }
  [[nodiscard]] bool wants_hello() noexcept;
  // Writes a hello without content, sealed_bytes(kHello) bytes, to `out`.
  size_t answer(uint8_t* out, Nanos now) noexcept;

  [[nodiscard]] const Life& life() const noexcept { return life_; }
  // Returns the id of the key that sealed the neighbour's latest packet; nothing before its first fresh hello. If it is
  // our newest key, the neighbour knows that we have it, and needs the old one no longer.
  [[nodiscard]] std::optional<uint16_t> neighbour_key() const noexcept {
    return known_ ? std::optional(used_) : std::nullopt;
  }

 private:
  static constexpr Nanos kAnswerEvery = kMillisecond;

  size_t seal_hello(const RingKey& key, const uint8_t* packet, size_t bytes, const Life& met, uint8_t* out) noexcept;
  [[nodiscard]] Opened open_hello(const Envelope& envelope, uint8_t* packet, size_t bytes) noexcept;
  void note_key(const Envelope& envelope) noexcept;
  [[nodiscard]] bool is_replay(const Greeting& greeting, uint64_t counter) const noexcept;
  [[nodiscard]] Verdict judge(const Greeting& greeting, const Envelope& envelope) noexcept;
  [[nodiscard]] const RingKey& sending_key() const noexcept;
  void follow_keys() noexcept;
  void make_keys() noexcept;
  void adopt(const Life& life) noexcept;

  const KeyRing& ring_;
  const Security security_;
  const LinkEnds ends_;
  Life life_;
  KeyRing::Keys keys_;
  uint64_t counter_ = 0;  // never reset, so no nonce repeats with any key of this life
  bool known_ = false;    // neighbour_ is set
  Life neighbour_{};
  ReplayWindow window_;
  uint64_t heard_ = 0;      // counter of the neighbour's latest packet
  uint16_t announced_ = 0;  // id of its newest key, as its latest hello says
  uint16_t used_ = 0;       // id of the key that sealed its latest packet
  uint16_t sends_ = 0;      // id of the key that sending_ follows from
  PacketCipher sending_;
  PacketCipher receiving_;
  PacketCipher receiving_old_;
  PacketCipher hellos_;
  bool keys_changed_ = false;  // keys have changed, and there was no answer since
  bool asked_ = false;
  Life asker_{};
  uint16_t asker_key_ = 0;  // id of the key that the asker has used
  Nanos answered_at_ = -kAnswerEvery;
};

}  // namespace gradlane
