// pool.h - packet buffers of a simulated network, and the lists they wait in
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/time.h"

namespace gradlane {

// Prints what a node under simulation did against its contract, and aborts: going on would hide the mistake.
[[noreturn]] void simnet_abort(unsigned node, const char* what) noexcept;

// A packet with its bytes behind it. In one list at a time.
struct SimBuffer {
  enum class State : uint8_t {
    kFree,
    kInFlight,    // on a wire, or waiting for a paused node
    kDelivering,  // during Exchange::receive()
    kReturned,    // released during Exchange::receive()
    kHeld,        // by the exchange of node `holder`
  };

  SimBuffer* previous;
  SimBuffer* next;
  Nanos due;       // in flight: arrival
  uint32_t bytes;  // in flight: length
  uint32_t from;   // in flight: node; waiting for a paused node: rank of the sender, as this node sees it
  uint32_t to;     // in flight: node
  uint32_t holder;
  State state;

  // As far into a cache line as behind Ethernet, IPv4 and UDP headers.
  [[nodiscard]] uint8_t* data() noexcept { return reinterpret_cast<uint8_t*>(this) + kDataOffset; }

  static constexpr size_t kDataOffset = 64 + 42;
};
static_assert(sizeof(SimBuffer) <= 64);

// Buffers for all nodes and wires, which grow in number and are recycled, last in, first out. AddressSanitizer catches
// accesses to buffers that are free.
class SimPool {
 public:
  // Packets have at most `capacity` bytes.
  explicit SimPool(size_t capacity);

  [[nodiscard]] SimBuffer* take();
  void give(SimBuffer* buffer) noexcept;

  // Makes the first `bytes` bytes accessible and the rest not; for AddressSanitizer.
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

// Packets in the order of their arrival times; those of the same time in the order they were put in.
class SimQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] Nanos due() const noexcept { return first_ == nullptr ? kNever : first_->due; }
  [[nodiscard]] size_t size() const noexcept { return size_; }

  // Takes no longer the more packets there are, unless there are many with later times.
  void put(SimBuffer* buffer) noexcept;
  // The first one; the queue must not be empty.
  SimBuffer* take() noexcept;

 private:
  SimBuffer* first_ = nullptr;
  SimBuffer* last_ = nullptr;
  size_t size_ = 0;
};

}  // namespace gradlane
