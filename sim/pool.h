// pool.h - packet buffers of a simulated network, and the queues in which they wait
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/time.h"

namespace gradlane {

// Prints how a simulated node violated its contract, and aborts the process. Going on would hide the mistake.
[[noreturn]] void simnet_abort(unsigned node, const char* what) noexcept;

// A packet, whose bytes follow this header in memory. It is in at most one list at a time.
struct SimBuffer {
  enum class State : uint8_t {
    kFree,
    kInFlight,    // on a wire, or waiting for a paused node
    kDelivering,  // during Exchange::receive()
    kReturned,    // released during Exchange::receive()
    kHeld,        // held by the exchange of node `holder`
  };

  SimBuffer* previous;
  SimBuffer* next;
  Nanos due;       // in flight: arrival time
  uint32_t bytes;  // in flight: length
  uint32_t from;   // in flight: node; waiting for a paused node: rank of the sender, as this node sees it
  uint32_t to;     // in flight: node
  uint32_t holder;
  State state;

  // Returns the packet's bytes. Their offset in a cache line is that of bytes after Ethernet, IPv4 and UDP headers.
  [[nodiscard]] uint8_t* data() noexcept { return reinterpret_cast<uint8_t*>(this) + kDataOffset; }

  static constexpr size_t kDataOffset = 64 + 42;
};
static_assert(sizeof(SimBuffer) <= 64);

// The buffers of all nodes and wires. Their number grows on demand. A freed buffer is reused, last in, first out.
// AddressSanitizer catches accesses to free buffers.
class SimPool {
 public:
  // Makes a pool for packets of at most `capacity` bytes.
  explicit SimPool(size_t capacity);

  [[nodiscard]] SimBuffer* take();
  void give(SimBuffer* buffer) noexcept;

  // Tells AddressSanitizer that the first `bytes` bytes are accessible and the rest is not.
  void open(SimBuffer* buffer, size_t bytes) noexcept;

  [[nodiscard]] size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] size_t taken() const noexcept { return taken_; }

 private:
  struct Unmap {
    void operator()(uint8_t* chunk) const noexcept;
  };
  void grow();

  size_t capacity_;
  size_t stride_;
  size_t taken_ = 0;
  SimBuffer* free_ = nullptr;
  std::vector<std::unique_ptr<uint8_t, Unmap>> chunks_;
};

// Packets in the order of their arrival times. Packets with the same time keep the order in which they were put in.
class SimQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] Nanos due() const noexcept { return first_ == nullptr ? kNever : first_->due; }
  [[nodiscard]] size_t size() const noexcept { return size_; }

  // Adds a packet. The cost does not grow with the number of packets, unless many of them have later times.
  void put(SimBuffer* buffer) noexcept;
  // Removes and returns the first packet. The queue must not be empty.
  SimBuffer* take() noexcept;

 private:
  SimBuffer* first_ = nullptr;
  SimBuffer* last_ = nullptr;
  size_t size_ = 0;
};

}  // namespace gradlane
