// deferred_packets.h - received packets whose runs go on to a neighbour when the link to it has space (packet path)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/packet_io.h"

namespace gradlane {

// A FIFO of packets that were checked and accepted. Without it, their elements would be added to the tensor, and read
// and encoded again later. The caller of pop() owns the packet's buffer.
class DeferredPackets {
 public:
  struct Item {
    Packet packet;
    size_t bytes = 0;
    uint32_t payload_crc = 0;
    size_t from = 0;  // link by which it arrived
    size_t next = 0;  // link that it waits for
  };

  // Returns the largest number of packets for a rank whose links have this window. About as many arrive while the
  // neighbour's process does not run.
  [[nodiscard]] static size_t most(size_t window) noexcept { return std::min<size_t>(window, 128); }

  explicit DeferredPackets(size_t most) : items_(most) {}

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool full() const noexcept { return count_ == items_.size(); }
  [[nodiscard]] const Item& front() const noexcept { return items_[first_]; }
  void push(const Item& item) noexcept { items_[(first_ + count_++) % items_.size()] = item; }
  Item pop() noexcept {
    const Item item = items_[first_];
    first_ = (first_ + 1) % items_.size();
    --count_;
    return item;
  }

 private:
  std::vector<Item> items_;
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace gradlane
