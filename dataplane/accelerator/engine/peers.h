// peers.h - behind which addresses accelerators restore what this one compresses (worker thread; others may look)
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/time.h"

struct evp_cipher_ctx_st;

namespace gradlane::accel {

// Compressed packets are of no use to a machine without an accelerator: it would take them for the data itself. So
// nothing is compressed towards an address until an accelerator has answered there, and no longer than kHolds after its
// last answer. Addresses are asked (docs/accelerator.md, "Hello") while there is marked traffic to them, and for kKept
// after it.
class Peers {
 public:
  static constexpr size_t kWays = 8;
  static constexpr size_t kMost = 1024;  // addresses; one more takes the place of one that is not used
  static constexpr Nanos kQuick = 50 * kMillisecond;
  static constexpr unsigned kQuickAsks = 5;  // so often kQuick apart; then,
  static constexpr Nanos kAgain = kSecond;   // and where somebody has answered, this far apart
  static constexpr Nanos kHolds = 3 * kSecond;
  static constexpr Nanos kKept = 60 * kSecond;
  static constexpr Nanos kBlockedFor = 300 * kSecond;
  static constexpr Nanos kApart = kMillisecond;  // questions, whatever their number
  static constexpr size_t kTemplate = 34;        // Ethernet and IPv4 headers, whose addresses a hello has

  enum class State : uint8_t {
    kAsked,    // just now
    kAnswers,  // compressed packets may go there
    kSilent,   // was asked for a second, and nobody answers
    kBlocked,  // answers, but compressed packets do not arrive: none are sent for kBlockedFor
  };

  // `seed` makes hashes and nonces unpredictable. Throws SetupError.
  explicit Peers(uint64_t seed);

  // A marked packet is about to go where this frame (Ethernet, IPv4) goes: may it be compressed? Addresses of groups
  // never answer.
  [[nodiscard]] bool restores(const uint8_t* frame, uint32_t ip, Nanos now) noexcept;
  // What became of it.
  void count(uint32_t ip, bool compressed) noexcept;

  // An answer came from that address. False: to nothing that was asked there lately. The quick
  // questions have one nonce, so that the way there and back may be long.
  [[nodiscard]] bool answered(uint32_t ip, uint64_t nonce, Nanos now) noexcept;
  // A question came from there: it is an accelerator's.
  void asks(uint32_t ip, Nanos now) noexcept;
  // Since when it has answered without a pause; `now` if it does not.
  [[nodiscard]] Nanos answers_since(uint32_t ip, Nanos now) noexcept;
  // What is sent there compressed does not arrive.
  void block(uint32_t ip, Nanos now) noexcept;
  // There was an accelerator within the last kKept: all that it sends with the wire's code point is its own.
  [[nodiscard]] bool is_accelerator(uint32_t ip, Nanos now) noexcept;

  // An address that has to be asked now; none: headers is null. Call until there is none. Cheap where none is due.
  struct Question {
    const uint8_t* headers = nullptr;  // of kTemplate bytes, to take the addresses from
    uint64_t nonce = 0;
  };
  [[nodiscard]] Question next_question(Nanos now) noexcept;

  // Any thread: visit(ip, state, compressed packets, uncompressed marked packets, time since the last of them).
  template <class Visit>
  void for_each(Nanos now, Visit visit) const {
    for (const Peer& peer : peers_) {
      const uint32_t ip = peer.ip.load(std::memory_order_relaxed);
      const Nanos used_at = peer.used_at.load(std::memory_order_relaxed);
      if (ip == 0 || used_at == 0) continue;
      visit(ip, state_of(peer, now), peer.compressed.load(std::memory_order_relaxed),
            peer.uncompressed.load(std::memory_order_relaxed), used_at < now ? now - used_at : 0);
    }
  }

 private:
  // The worker writes. Atomic is what other threads read.
  struct Peer {
    std::atomic<uint32_t> ip{0};    // 0: free
    std::atomic<unsigned> asks{0};  // since the last answer
    std::atomic<Nanos> answered_at{0};
    std::atomic<Nanos> used_at{0};  // 0: never
    std::atomic<Nanos> blocked_until{0};
    std::atomic<uint64_t> compressed{0};
    std::atomic<uint64_t> uncompressed{0};
    uint64_t nonce = 0;  // of questions without an answer
    Nanos ask_at = 0;
    Nanos asked_us_at = 0;
    Nanos answers_since = 0;
    std::array<uint8_t, kTemplate> headers{};
  };

  [[nodiscard]] static State state_of(const Peer& peer, Nanos now) noexcept;
  [[nodiscard]] static bool holds(const Peer& peer, Nanos now) noexcept;
  [[nodiscard]] Peer* bucket_of(uint32_t ip) noexcept;
  [[nodiscard]] Peer* find(uint32_t ip) noexcept;
  // Null: all who could make room are in use.
  [[nodiscard]] Peer* make(uint32_t ip, Nanos now) noexcept;
  [[nodiscard]] uint64_t next_nonce() noexcept;

  struct Free {
    void operator()(evp_cipher_ctx_st* context) const noexcept;
  };
  const uint64_t seed_;
  const std::unique_ptr<evp_cipher_ctx_st, Free> cipher_;  // of a counter, which makes nonces
  uint64_t nonces_ = 0;
  Nanos ask_at_ = kNever;  // when the first of all is due, or earlier
  Nanos asked_at_ = 0;     // the last of all
  size_t looked_at_ = 0;   // by next_question()
  Peer* last_ = nullptr;   // which most packets go to
  std::array<Peer, kMost> peers_{};
};

}  // namespace gradlane::accel
