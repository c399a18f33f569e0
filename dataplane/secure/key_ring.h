// key_ring.h - the keys that a node shares with others: the newest one and, for some time, the one before it
//
// The control thread changes keys while workers use them. In each round, a worker looks at version() before it uses
// the keys that it knows.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "dataplane/secure/ring_key.h"

namespace gradlane {

class KeyRing {
 public:
  explicit KeyRing(const RingKey& key) { slots_[0].emplace(key); }
  KeyRing(const KeyRing&) = delete;
  KeyRing& operator=(const KeyRing&) = delete;

  struct Keys {
    const RingKey* newest = nullptr;
    const RingKey* old = nullptr;  // null: there is only one key
    uint32_t version = 0;          // different after each change
    // Returns the key with this id; null if there is none.
    [[nodiscard]] const RingKey* with(uint16_t id) const noexcept {
      if (newest->id() == id) return newest;
      return old != nullptr && old->id() == id ? old : nullptr;
    }
  };
  // Any thread.
  [[nodiscard]] Keys keys() const noexcept {
    const uint32_t state = state_.load(std::memory_order_acquire);
    const size_t newest = state & kNewest;
    return {&*slots_[newest], (state & kHasOld) != 0 ? &*slots_[1 - newest] : nullptr, state / kVersion};
  }
  // Any thread.
  [[nodiscard]] uint32_t version() const noexcept { return state_.load(std::memory_order_acquire) / kVersion; }

  // ---- Control thread
  // Makes this key the newest one. An old key must first be removed by drop_old() and wipe().
  void add(const RingKey& key) {
    const uint32_t state = state_.load(std::memory_order_relaxed);
    const uint32_t newest = 1 - (state & kNewest);
    slots_[newest].emplace(key);
    state_.store((state / kVersion + 1) * kVersion | kHasOld | newest, std::memory_order_release);
  }
  void drop_old() noexcept {
    const uint32_t state = state_.load(std::memory_order_relaxed);
    state_.store((state / kVersion + 1) * kVersion | (state & kNewest), std::memory_order_release);
  }
  // Erases a dropped key from memory. All workers must have ended their rounds of drop_old().
  void wipe() noexcept { slots_[1 - (state_.load(std::memory_order_relaxed) & kNewest)].reset(); }

 private:
  static constexpr uint32_t kNewest = 1;  // index of the newest key
  static constexpr uint32_t kHasOld = 2;
  static constexpr uint32_t kVersion = 4;

  std::array<std::optional<RingKey>, 2> slots_;
  std::atomic<uint32_t> state_{0};
};

}  // namespace gradlane
