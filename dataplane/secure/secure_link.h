// secure_link.h - one end of a link whose packets are in envelopes: keys, counters and replays (worker thread)
//
// Each end chooses a random life when it is made, and says in its hellos which life of the other end it knows. A hello
// that knows our life is fresh: nobody could have recorded it before. Then its sender's life is adopted, and both lives
// make the keys of all other packets. A life that another one has replaced never comes back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"
#include "dataplane/secure/envelope.h"

namespace gradlane {

// Notes which counters have arrived (RFC 6479).
class ReplayWindow {
 public:
  static constexpr size_t kBits = 8192;

  // Returns whether this counter is new, and not more than kBits before the latest.
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
  // `ends` are those of the packets that this end sends. Throws SetupError.
  SecureLink(const RingKey& key, Security security, const LinkEnds& ends);

  // Writes the sealed packet, a link header and what follows it, to `out`. Returns its length, or 0 if the neighbour's
  // life is not known; hellos are always sealed. `out` needs space for sealed_bytes(kHello) more bytes than the packet
  // has.
  [[nodiscard]] size_t seal(const uint8_t* packet, size_t bytes, uint8_t* out) noexcept;

  enum class Verdict : uint8_t {
    kGood,
    kUnmet,     // authentic, but its sender did not know our life, or we did not know its life
    kReplayed,  // arrived before, is too old, or comes from a life that another one has replaced
    kForged,
  };
  struct Opened {
    Verdict verdict = Verdict::kForged;
    size_t bytes = 0;  // of the packet without its envelope; 0: it only told lives
  };
  // Opens a packet of `bytes` bytes in place.
  [[nodiscard]] Opened open(const Envelope& envelope, uint8_t* packet, size_t bytes) noexcept;

  // Returns whether answer() should be sent now, because the neighbour does not know our life.
  [[nodiscard]] bool owes_answer(Nanos now) const noexcept {
    return adopted_ || (asked_ && now - answered_at_ >= kAnswerEvery);
  }
  // Writes a hello without content, sealed_bytes(kHello) bytes, to `out`.
  size_t answer(uint8_t* out, Nanos now) noexcept;

  [[nodiscard]] const Life& life() const noexcept { return life_; }

 private:
  static constexpr size_t kRetired = 64;
  static constexpr Nanos kAnswerEvery = kMillisecond;

  size_t seal_hello(const uint8_t* packet, size_t bytes, const Life& met, uint8_t* out) noexcept;
  [[nodiscard]] Verdict judge(const Life& from, const Life& met, uint64_t counter) noexcept;
  [[nodiscard]] bool is_retired(const Life& life) const noexcept;
  void adopt(const Life& life) noexcept;

  const RingKey key_;
  const Security security_;
  const LinkEnds ends_;
  const Life life_;
  uint64_t counter_ = 0;  // never reset, so no nonce repeats with any key of this life
  bool known_ = false;    // the neighbour has a life
  Life neighbour_{};
  ReplayWindow window_;
  std::array<Life, kRetired> retired_{};  // latest earlier lives of the neighbour
  size_t retired_count_ = 0;
  PacketCipher sending_;
  PacketCipher receiving_;
  PacketCipher hellos_;
  bool adopted_ = false;  // a life was adopted, and there was no answer since
  bool asked_ = false;
  Life asker_{};
  Nanos answered_at_ = -kAnswerEvery;
};

}  // namespace gradlane
