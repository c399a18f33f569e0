// address_claim.h - claims this node's address on a port's network and defends it: RFC 5227, without I/O or clock
#pragma once

#include <atomic>
#include <cstdint>

#include "base/time.h"

namespace gradlane {

// The claim of this node's address on a port. Before a node uses its address, it sends *probes*: ARP requests without a
// sender's address. If nobody answers, it takes the address, and defends it from then on. A *conflict* is an ARP packet
// or a gradlane packet with this address from another MAC address. On a conflict the node announces itself, at most
// every 10 s, and keeps the address (RFC 5227, 2.4, case c, which is for servers with configured addresses).
//
// The RFC's times are for hosts that can wait for seconds, and for networks that learn slowly: 3 probes within 3 to 7
// s. Here all three are sent within 200 ms, and 100 ms later the address is taken. A start must not take seconds, and a
// host that has the address answers at once.
//
// One worker polls. The workers of all queues of the port report what they see. Any thread reads.
class AddressClaim {
 public:
  enum class State : uint8_t {
    kWaiting,  // waits for the link
    kProbing,
    kHeld,
    kTaken,  // another host has the address: it is not used, and is probed again and again
  };
  enum class Step : uint8_t { kNone, kProbe, kAnnounce };

  static constexpr unsigned kProbes = 3;
  static constexpr Nanos kInterval = 100 * kMillisecond;
  static constexpr Nanos kDefend = 10 * kSecond;
  static constexpr Nanos kAgain = kSecond;  // time from finding the address taken to the next try

  // `alone`: nobody else can be on this network, a link inside this machine. Then the address is held from the
  // beginning.
  explicit AddressClaim(bool alone) noexcept : state_(alone ? State::kHeld : State::kWaiting) {}
  AddressClaim(const AddressClaim&) = delete;
  AddressClaim& operator=(const AddressClaim&) = delete;

  // Returns what to send now. The worker of the port's first queue calls it.
  [[nodiscard]] Step poll(bool link_up, Nanos now) noexcept;

  // Reports a host that has the address or wants it, too. `mac` is in the form of pack_mac(). Any worker may call it.
  void contest(uint64_t mac) noexcept {
    rival_.store(mac, std::memory_order_relaxed);
    conflicts_.fetch_add(1, std::memory_order_release);
  }
  // Reports a host that probes for the address. This is a conflict only if this node does not hold the address yet.
  void asked(uint64_t mac) noexcept {
    if (!held()) return contest(mac);
    asker_.store(mac, std::memory_order_relaxed);
    asked_.fetch_add(1, std::memory_order_release);
  }

  [[nodiscard]] State state() const noexcept { return state_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool held() const noexcept { return state() == State::kHeld; }
  // rival() is the MAC address (pack_mac()) of the latest other host that had the address; 0: there was none.
  // conflicts() says how often such a host was seen.
  [[nodiscard]] uint64_t rival() const noexcept { return rival_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t conflicts() const noexcept { return conflicts_.load(std::memory_order_acquire); }
  // asker() and times_asked() are about hosts that probed for the address while it was held.
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
  // State of the worker that polls.
  uint64_t seen_ = 0;  // conflicts at the latest poll
  unsigned probes_ = 0;
  Nanos next_ = 0;
  Nanos defended_at_ = 0;
};

}  // namespace gradlane
