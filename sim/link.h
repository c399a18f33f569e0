// link.h - the path of packets in a simulated network: bandwidth, delay, a drop-tail queue, and faults by seed
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/fault_dice.h"
#include "base/random.h"
#include "base/time.h"
#include "sim/pool.h"

namespace gradlane {

// Lengths of the IPv4 and UDP headers; and of the Ethernet header, FCS, preamble and gap.
inline constexpr size_t kUdpIpBytes = 28;
inline constexpr size_t kEthernetOverhead = 38;

struct LinkModel {
  uint64_t bits_per_second = 10'000'000'000;
  Nanos delay = 25 * kMicrosecond;  // one way
  // Limit in wire bytes of the waiting packets and of the unsent rest of the packet being sent.
  size_t queue_bytes = size_t{512} << 10;
  size_t overhead_bytes = kUdpIpBytes + kEthernetOverhead;  // overhead of each packet
};

// Probabilities of faults, per packet.
struct Faults {
  double loss = 0;
  double duplicate = 0;  // the copy is reordered and corrupted independently
  double reorder = 0;    // packet arrives up to reorder_delay later, and may be overtaken
  double corrupt = 0;    // 1 to 8 bits are flipped, or the end is cut off
  double busy = 0;       // transmit() returns false
  Nanos reorder_delay = 100 * kMicrosecond;
};

struct LinkStats {
  uint64_t packets = 0;  // packets that were put on the wire
  uint64_t bytes = 0;    // length of these packets, without overhead
  uint64_t wire_bytes = 0;
  uint64_t delivered = 0;  // packets that arrived, copies included
  uint64_t busy = 0;       // packets that transmit() refused
  uint64_t filtered = 0;   // packets that a test's filter removed; they never were on the wire
  uint64_t queue_drops = 0;
  uint64_t lost = 0;
  uint64_t blacked_out = 0;
  uint64_t duplicated = 0;
  uint64_t reordered = 0;
  uint64_t corrupted = 0;

  LinkStats& operator+=(const LinkStats& other) noexcept;
};

// Packets leave one after the other at the wire's rate, and arrive `delay` after their last bit left. The rate is exact
// in the long run. Each single time is rounded down to a nanosecond.
class SimWire {
 public:
  // Sets the model for packets that are sent from now on.
  void set_model(const LinkModel& model) noexcept { model_ = model; }
  [[nodiscard]] size_t wire_bytes(size_t packet_bytes) const noexcept { return packet_bytes + model_.overhead_bytes; }

  // Returns whether the queue has space for a packet of `wire_bytes` bytes on the wire.
  [[nodiscard]] bool has_room(size_t wire_bytes, Nanos now) const noexcept;
  // Reserves the wire for one packet, after all others. Returns its arrival time.
  Nanos occupy(size_t wire_bytes, Nanos now) noexcept;

  // Returns the packets in flight.
  [[nodiscard]] SimQueue& queue() noexcept { return queue_; }
  // Returns the time at which the next packet arrives, or kNever.
  [[nodiscard]] Nanos due() const noexcept { return queue_.due(); }

 private:
  LinkModel model_;
  Nanos free_at_ = 0;           // time at which the last packet has left
  uint64_t free_fraction_ = 0;  // fraction to add to free_at_, in units of 1 ns / bits_per_second
  SimQueue queue_;
};

// The path from one node to another: it applies faults to packets, and counts them. A packet that is lost by a fault
// has still occupied the sender's wire. A packet that the queue of a SimLink drops has not.
class SimPath {
 public:
  SimPath(unsigned from, unsigned to, uint64_t seed)
      : from_(from), to_(to), busy_(Random::mix(seed, 1)), dice_(Random(Random::mix(seed, 2))) {}

  [[nodiscard]] unsigned from() const noexcept { return from_; }  // nodes, not ranks
  [[nodiscard]] unsigned to() const noexcept { return to_; }
  [[nodiscard]] const LinkStats& stats() const noexcept { return stats_; }

  // Sets the faults for packets that are sent from now on.
  void set_faults(const Faults& faults) noexcept;
  // Loses all packets that enter or arrive from `begin` to before `end`. Replaces an earlier blackout.
  void black_out(Nanos begin, Nanos end) noexcept;

  // Returns whether transmit() must fail this time, and counts it if so.
  [[nodiscard]] bool refuses() noexcept;
  void count_busy() noexcept { ++stats_.busy; }
  void count_filtered() noexcept { ++stats_.filtered; }
  void count_queue_drop() noexcept { ++stats_.queue_drops; }

  // Sends a packet that leaves its sender at `now`. Puts a copy of it, or two, or none, into `queue`, to arrive at
  // `due` or later.
  void enter(std::span<const uint8_t> packet, size_t wire_bytes, Nanos now, Nanos due, SimPool& pool, SimQueue& queue);
  // Handles the arrival of a packet at buffer->due. Frees it and returns false if it was lost on arrival.
  [[nodiscard]] bool leave(SimBuffer* buffer, SimPool& pool) noexcept;

 private:
  [[nodiscard]] bool dark(Nanos time) const noexcept { return time >= dark_begin_ && time < dark_end_; }
  void launch(std::span<const uint8_t> packet, Nanos due, const FaultDice::Fate& fate, SimPool& pool, SimQueue& queue);
  void corrupt(SimBuffer& buffer, uint64_t seed) noexcept;

  unsigned from_;
  unsigned to_;
  Faults faults_;
  FaultChances chances_;  // probabilities of the faults that the dice decide
  bool faulty_ = false;   // whether any of these is above 0
  Nanos dark_begin_ = kNever;
  Nanos dark_end_ = kNever;
  Random busy_;
  FaultDice dice_;
  LinkStats stats_;
};

// One direction of a cable: a path with a wire of its own.
class SimLink : public SimPath {
 public:
  using SimPath::SimPath;

  void set_model(const LinkModel& model) noexcept { wire_.set_model(model); }

  // Sends a copy of `packet`, or drops it if the queue is full.
  void send(std::span<const uint8_t> packet, Nanos now, SimPool& pool);

  // Returns the time at which the next packet arrives, or kNever.
  [[nodiscard]] Nanos due() const noexcept { return wire_.due(); }
  // Takes that packet. Returns null if it was lost on arrival.
  [[nodiscard]] SimBuffer* arrive(SimPool& pool) noexcept;

 private:
  SimWire wire_;
};

}  // namespace gradlane
