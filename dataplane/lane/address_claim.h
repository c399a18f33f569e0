// address_claim.h - whether this node's address is its own on a port's network: RFC 5227, without I/O or clock
#pragma once

#include <atomic>
#include <cstdint>

#include "base/time.h"

namespace gradlane {

// Before a node uses its address on a port, it asks whether anybody has it, and takes it if nobody answers: *probes*
// are ARP requests with no sender's address. From then on it defends it: on a *conflict*, which is an ARP packet or a
// packet of gradlane with this address from another MAC address, it announces itself, at most every 10 s, and goes on
// (RFC 5227, 2.4, case c: as servers do whose address is configured).
//
// The RFC's times are for hosts that have seconds, and for networks that learn slowly: 3 probes within 3 to 7 s. Here
// all three go within 200 ms, and 100 ms later the address is taken: a start must not take seconds, and whoever has the
// address is a host that answers at once.
//
// One worker polls; those of all queues of the port tell what they see; any thread reads.
class AddressClaim {
 public:
  enum class State : uint8_t {
    kWaiting,  // for the link
    kProbing,
    kHeld,
    kTaken,  // by somebody else: it is not used, and asked for again and again
  };
  enum class Step : uint8_t { kNone, kProbe, kAnnounce };

  static constexpr unsigned kProbes = 3;
  static constexpr Nanos kInterval = 100 * kMillisecond;
  static constexpr Nanos kDefend = 10 * kSecond;
  static constexpr Nanos kAgain = kSecond;  // after it was found taken

  // `alone`: nobody else can be on this network, a link inside this machine; the address is held from the beginning.
  explicit AddressClaim(bool alone) noexcept : state_(alone ? State::kHeld : State::kWaiting) {}
  AddressClaim(const AddressClaim&) = delete;
  AddressClaim& operator=(const AddressClaim&) = delete;

  // What to send now. The worker of the port's first queue.
  [[nodiscard]] Step poll(bool link_up, Nanos now) noexcept;

  // Somebody else has the address, or wants it, too: `mac` (pack_mac()). Any worker.
  void contest(uint64_t mac) noexcept {
    rival_.store(mac, std::memory_order_relaxed);
    conflicts_.fetch_add(1, std::memory_order_release);
  }
  // Somebody probes for it. It is taken only if this node has not got it yet.
  void asked(uint64_t mac) noexcept {
    if (!held()) return contest(mac);
    asker_.store(mac, std::memory_order_relaxed);
    asked_.fetch_add(1, std::memory_order_release);
  }

  [[nodiscard]] State state() const noexcept { return state_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool held() const noexcept { return state() == State::kHeld; }
  // Who else had it last, pack_mac(); 0: nobody yet. And how often that was seen.
  [[nodiscard]] uint64_t rival() const noexcept { return rival_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t conflicts() const noexcept { return conflicts_.load(std::memory_order_acquire); }
  // The same of those who probed for it while it was held.
  [[nodiscard]] uint64_t asker() const noexcept { return asker_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t times_asked() const noexcept { return asked_.load(std::memory_order_acquire); }

 private:
  [[nodiscard]] Step probe(Nanos now) noexcept;
  [[nodiscard]] Step defend(bool conflict, Nanos now) noexcept;
  void become(State state) noexcept { state_.store(state, std::memory_order_relaxed); }

  std::atomic<State> state_;
  std::atomic<uint64_t> rival_{0};
  std::atomic<uint64_t> conflicts_{0};
  std::atomic<uint64_t> asker_{0};
  std::atomic<uint64_t> asked_{0};
  // Of the worker that polls.
  uint64_t seen_ = 0;  // conflicts, as of the last poll
  unsigned probes_ = 0;
  Nanos next_ = 0;
  Nanos defended_at_ = 0;
};

}  // namespace gradlane
