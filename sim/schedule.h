// schedule.h - the next event of a simulated network: a binary heap with one place per source of events
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"

namespace gradlane {

// A fixed number of sources (links, timers), each with the time of its next event, or kNever. A source has only one
// place in the heap. So there are no stale events, and the heap stays as small as the network. If several sources have
// the same time, the one with the lowest number comes first, in whatever order the times were set.
class Schedule {
 public:
  explicit Schedule(size_t sources) : heap_(sources), place_(sources) {
    for (uint32_t i = 0; i < sources; ++i) {
      heap_[i] = {kNever, i};
      place_[i] = i;
    }
  }

  // Return the time and the source of the next event.
  [[nodiscard]] Nanos time() const noexcept { return heap_.front().time; }
  [[nodiscard]] size_t source() const noexcept { return heap_.front().source; }

  [[nodiscard]] Nanos time_of(size_t source) const noexcept { return heap_[place_[source]].time; }

  void set(size_t source, Nanos time) noexcept {
    const Entry entry = {time, static_cast<uint32_t>(source)};
    const size_t at = place_[source];
    if (before(entry, heap_[at])) {
      move_up(entry, at);
    } else {
      move_down(entry, at);
    }
  }

 private:
  struct Entry {
    Nanos time;
    uint32_t source;
  };
  static bool before(const Entry& a, const Entry& b) noexcept {
    return a.time < b.time || (a.time == b.time && a.source < b.source);
  }

  void put(const Entry& entry, size_t at) noexcept {
    heap_[at] = entry;
    place_[entry.source] = static_cast<uint32_t>(at);
  }

  void move_up(const Entry& entry, size_t at) noexcept {
    while (at > 0) {
      const size_t parent = (at - 1) / 2;
      if (!before(entry, heap_[parent])) break;
      put(heap_[parent], at);
      at = parent;
    }
    put(entry, at);
  }

  void move_down(const Entry& entry, size_t at) noexcept {
    for (size_t child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
      if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) ++child;
      if (!before(heap_[child], entry)) break;
      put(heap_[child], at);
      at = child;
    }
    put(entry, at);
  }

  std::vector<Entry> heap_;
  std::vector<uint32_t> place_;  // place of each source in heap_
};

}  // namespace gradlane
