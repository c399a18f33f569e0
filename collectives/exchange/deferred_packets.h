// deferred_packets.h - received packets whose runs go on to a neighbour when the link to it has space (packet path)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/packet_io.h"

namespace gradlane {

// A FIFO of packets that were checked and accepted. Without it, they would be absorbed: stored in the tensor, and read
// and encoded again later. The caller of pop() owns the packet's buffer.
class DeferredPackets {
 public:
  struct Item {
    Packet packet;
    size_t bytes = 0;
    uint32_t payload_crc = 0;
    size_t from_link = 0;  // link by which it arrived
    size_t next_link = 0;  // link that it waits for
  };

  // Returns the number of packets that a rank defers at most, if this is the window of its links.
  [[nodiscard]] static size_t capacity_for(size_t window) noexcept { return std::min(window, kMost); }

  explicit DeferredPackets(size_t capacity) : items_(capacity) {}

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool full() const noexcept { return count_ == items_.size(); }
  // ---- front() and pop() need a packet.
  [[nodiscard]] const Item& front() const noexcept { return items_[first_]; }
  void push(const Item& item) noexcept { items_[(first_ + count_++) % items_.size()] = item; }
  Item pop() noexcept {
    const Item item = items_[first_];
    first_ = (first_ + 1) % items_.size();
    --count_;
    return item;
  }

 private:
  // about the number of packets that arrive while the neighbour's process does not run
  static constexpr size_t kMost = 128;

  std::vector<Item> items_;
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace gradlane
