// peers.h - the peers of an accelerator, which are IP addresses: whether another accelerator there restores compressed
// packets (worker thread; other threads may read)
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/time.h"

struct evp_cipher_ctx_st;

namespace gradlane::accel {

// A machine without an accelerator cannot use compressed packets: it would take them for the data itself. So packets to
// an address are compressed only if an accelerator there has answered a hello within the last kHolds. An address is
// asked by hellos (docs/accelerator.md, "Hello") while there is marked traffic to it, and for kKept after the last
// marked packet.
class Peers {
 public:
  static constexpr size_t kWays = 8;
  static constexpr size_t kMost = 1024;  // limit of addresses; a new address replaces one that is not in use
  static constexpr Nanos kQuick = 50 * kMillisecond;
  static constexpr unsigned kQuickAsks = 5;  // number of questions at the start, which are kQuick apart
  // Interval of later questions, and of all questions while the address answers.
  static constexpr Nanos kAgain = kSecond;
  static constexpr Nanos kHolds = 3 * kSecond;
  static constexpr Nanos kKept = 60 * kSecond;
  static constexpr Nanos kBlockedFor = 300 * kSecond;
  static constexpr Nanos kApart = kMillisecond;  // shortest time between two questions, to whatever peers
  static constexpr size_t kTemplate = 34;        // bytes of Ethernet and IPv4 headers, which give a hello its addresses

  enum class State : uint8_t {
    kAsked,    // was asked, and has not answered yet
    kAnswers,  // has answered lately; packets to it may be compressed
    kSilent,   // was asked for about a second, and nobody answered
    kBlocked,  // answers, but compressed packets do not arrive: none are sent for kBlockedFor
  };

  // The seed makes hashes and nonces unpredictable. Throws SetupError if libcrypto has no AES-128.
  explicit Peers(uint64_t seed);

  // Returns whether a marked packet to `ip` may be compressed. `frame` is the packet's frame (Ethernet, IPv4). An
  // address that is not known yet will be asked. Multicast and broadcast addresses are never asked, and give false.
  [[nodiscard]] bool restores(const uint8_t* frame, uint32_t ip, Nanos now) noexcept;
  // Counts a marked packet to that address as compressed or uncompressed.
  void count(uint32_t ip, bool compressed) noexcept;

  // Handles an answer from that address. Returns false if it does not answer the latest nonce. All quick questions have
  // one nonce, so an answer still counts if it arrives after the next quick question.
  [[nodiscard]] bool answered(uint32_t ip, uint64_t nonce, Nanos now) noexcept;
  // Handles a question from that address, which shows that an accelerator is there.
  void asks(uint32_t ip, Nanos now) noexcept;
  // Returns the time since which the address has answered without a pause, or `now` if it does not answer.
  [[nodiscard]] Nanos answers_since(uint32_t ip, Nanos now) noexcept;
  // Stops compression towards that address for kBlockedFor, because compressed packets do not arrive there.
  void block(uint32_t ip, Nanos now) noexcept;
  // Returns whether an accelerator at that address has asked or answered within the last kKept. If so, every packet
  // from that address with the wire's code point was made by the accelerator.
  [[nodiscard]] bool is_accelerator(uint32_t ip, Nanos now) noexcept;

  // An address that must be asked now. `headers` is null if no question is due. Call next_question() until then. A call
  // is cheap if no question is due.
  struct Question {
    const uint8_t* headers = nullptr;  // kTemplate bytes of headers, from which the hello gets its addresses
    uint64_t nonce = 0;
  };
  [[nodiscard]] Question next_question(Nanos now) noexcept;

  // Any thread: calls visit(ip, state, compressed packets, uncompressed marked packets, time since the last of them).
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
  // The worker writes all fields. Fields that other threads read are atomic.
  struct Peer {
    std::atomic<uint32_t> ip{0};    // 0: free
    std::atomic<unsigned> asks{0};  // questions since the last answer
    std::atomic<Nanos> answered_at{0};
    std::atomic<Nanos> used_at{0};  // time of the last marked packet; 0: never
    std::atomic<Nanos> blocked_until{0};
    std::atomic<uint64_t> compressed{0};
    std::atomic<uint64_t> uncompressed{0};
    uint64_t nonce = 0;  // nonce of questions that have no answer yet
    Nanos ask_at = 0;
    Nanos asked_us_at = 0;
    Nanos answers_since = 0;
    std::array<uint8_t, kTemplate> headers{};
  };

  [[nodiscard]] static State state_of(const Peer& peer, Nanos now) noexcept;
  [[nodiscard]] static bool holds(const Peer& peer, Nanos now) noexcept;
  [[nodiscard]] Peer* bucket_of(uint32_t ip) noexcept;
  [[nodiscard]] Peer* find(uint32_t ip) noexcept;
  // Makes an entry for `ip` in place of the least recently used one of its bucket. Returns null if that one was used
  // within the last kAgain.
  [[nodiscard]] Peer* make(uint32_t ip, Nanos now) noexcept;
  [[nodiscard]] uint64_t next_nonce() noexcept;

  struct Free {
    void operator()(evp_cipher_ctx_st* context) const noexcept;
  };
  const uint64_t seed_;
  const std::unique_ptr<evp_cipher_ctx_st, Free> cipher_;  // encrypts a counter to make nonces
  uint64_t nonces_ = 0;
  Nanos ask_at_ = kNever;  // no question to any peer is due before this time
  Nanos asked_at_ = 0;     // time of the latest question to any peer
  size_t looked_at_ = 0;   // index of the peer at which next_question() continues
  Peer* last_ = nullptr;   // peer of the last lookup, because most packets go to one peer
  std::array<Peer, kMost> peers_{};
};

}  // namespace gradlane::accel
