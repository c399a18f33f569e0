// scan_barrier.h - counters by which the lanes of a rank wait for one another when each of them scans a whole tensor
// (worker threads)
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "client/abi.h"

namespace gradlane {

// Some codecs scan a tensor before they encode any of it. Each lane scans the whole tensor, and no lane may write to
// its share before all lanes have scanned it (Operation::scans_left). With local reduction, no lane scans before all
// lanes have added up their shares of the trainers' tensors.
//
// Each entry belongs to one operation and is selected by gl_submission's slot. A trainer never has two operations in
// flight with the same slot. If it breaks this rule, its own operations time out, and nothing worse happens.
class ScanBarrier {
 public:
  struct Entry {
    std::atomic<uint32_t> scans_left{0};
    std::atomic<uint32_t> to_sum{0};
    std::atomic<uint32_t> over{0};
  };

  explicit ScanBarrier(uint32_t lanes) noexcept : lanes_(lanes) { reset(); }

  [[nodiscard]] Entry& of(unsigned slot) noexcept { return entries_[slot % GL_SLOTS]; }

  // Resets all entries. No lane may have an operation of the trainer.
  void reset() noexcept {
    for (Entry& it : entries_) make_new(it);
  }

  // Called when a lane has finished the operation, before its trainer receives the completion. The last lane frees the
  // entry for another operation.
  void leave(Entry& it) noexcept {
    if (it.over.fetch_add(1, std::memory_order_acq_rel) + 1 == lanes_) make_new(it);
  }

 private:
  void make_new(Entry& it) noexcept {
    it.over.store(0, std::memory_order_relaxed);
    it.to_sum.store(lanes_, std::memory_order_relaxed);
    it.scans_left.store(lanes_, std::memory_order_release);
  }

  const uint32_t lanes_;
  std::array<Entry, GL_SLOTS> entries_;
};

}  // namespace gradlane
