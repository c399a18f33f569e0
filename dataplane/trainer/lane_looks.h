// lane_looks.h - where the lanes of a rank wait for one another, as each of them looks at all of a tensor
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "client/abi.h"

namespace gradlane {

// Of operations whose codec looks at a tensor before it encodes any of it: each lane looks at the whole, and none may
// write to its share before all have (Operation::lookers). Where trainers of a node are added up first, none looks
// before all have done that. An entry belongs to one operation, by gl_submission's slot: a trainer has no two in flight
// with the same one. A trainer that does not keep to that has its own operations time out, and nothing worse.
class LaneLooks {
 public:
  struct Entry {
    std::atomic<uint32_t> to_look{0};
    std::atomic<uint32_t> to_sum{0};
    std::atomic<uint32_t> over{0};
  };

  explicit LaneLooks(uint32_t lanes) noexcept : lanes_(lanes) { reset(); }

  [[nodiscard]] Entry& of(unsigned slot) noexcept { return entries_[slot % GL_SLOTS]; }

  // No lane has an operation of the trainer.
  void reset() noexcept {
    for (Entry& it : entries_) make_new(it);
  }

  // A lane is through with the operation, which its trainer has not been told yet. The last one makes room for another.
  void leave(Entry& it) noexcept {
    if (it.over.fetch_add(1, std::memory_order_acq_rel) + 1 == lanes_) make_new(it);
  }

 private:
  void make_new(Entry& it) noexcept {
    it.over.store(0, std::memory_order_relaxed);
    it.to_sum.store(lanes_, std::memory_order_relaxed);
    it.to_look.store(lanes_, std::memory_order_release);
  }

  const uint32_t lanes_;
  std::array<Entry, GL_SLOTS> entries_;
};

}  // namespace gradlane
