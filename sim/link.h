// link.h - what packets pass through on a simulated network: bandwidth, delay, a drop-tail queue, and faults by seed
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/fault_dice.h"
#include "base/random.h"
#include "base/time.h"
#include "sim/pool.h"

namespace gradlane {

// IPv4 and UDP headers; then Ethernet header, FCS, preamble and gap.
inline constexpr size_t kUdpIpBytes = 28;
inline constexpr size_t kEthernetOverhead = 38;

struct LinkModel {
  uint64_t bits_per_second = 10'000'000'000;
  Nanos delay = 25 * kMicrosecond;         // one way
  size_t queue_bytes = size_t{512} << 10;  // on the wire; what waits and what is left of the packet being sent
  size_t overhead_bytes = kUdpIpBytes + kEthernetOverhead;  // of each packet
};

// Probabilities per packet.
struct Faults {
  double loss = 0;
  double duplicate = 0;  // the copy has reordering and corruption of its own
  double reorder = 0;    // arrives up to reorder_delay later, and may be overtaken
  double corrupt = 0;    // 1 to 8 bits are flipped, or the end is missing
  double busy = 0;       // transmit() returns false
  Nanos reorder_delay = 100 * kMicrosecond;
};

struct LinkStats {
  uint64_t packets = 0;  // put on the wire
  uint64_t bytes = 0;    // of them, without overhead
  uint64_t wire_bytes = 0;
  uint64_t delivered = 0;  // arrived, copies included
  uint64_t busy = 0;       // refused by transmit()
  uint64_t filtered = 0;   // by a test's filter; never on the wire
  uint64_t queue_drops = 0;
  uint64_t lost = 0;
  uint64_t blacked_out = 0;
  uint64_t duplicated = 0;
  uint64_t reordered = 0;
  uint64_t corrupted = 0;

  LinkStats& operator+=(const LinkStats& other) noexcept;
};

// Packets leave one after the other at the wire's rate, exactly over time and rounded down to a nanosecond each, and
// arrive `delay` after their last bit left.
class SimWire {
 public:
  // For packets sent from now on.
  void set_model(const LinkModel& model) noexcept { model_ = model; }
  [[nodiscard]] size_t wire_bytes(size_t packet_bytes) const noexcept { return packet_bytes + model_.overhead_bytes; }

  // The queue has room for a packet of so many bytes on the wire.
  [[nodiscard]] bool has_room(size_t wire_bytes, Nanos now) const noexcept;
  // Lets one leave behind all others. Returns when it arrives.
  Nanos occupy(size_t wire_bytes, Nanos now) noexcept;

  // Those under way.
  [[nodiscard]] SimQueue& queue() noexcept { return queue_; }
  // When the next one arrives, or kNever.
  [[nodiscard]] Nanos due() const noexcept { return queue_.due(); }

 private:
  LinkModel model_;
  Nanos free_at_ = 0;           // when the last packet has left
  uint64_t free_fraction_ = 0;  // plus this, in units of 1 ns / bits_per_second
  SimQueue queue_;
};

// The way from one node to another: what becomes of packets there, and their figures. What is lost has used its share
// of the sender's rate, but for what a queue drops.
class SimPath {
 public:
  SimPath(unsigned from, unsigned to, uint64_t seed)
      : from_(from), to_(to), busy_(Random::mix(seed, 1)), dice_(Random(Random::mix(seed, 2))) {}

  [[nodiscard]] unsigned from() const noexcept { return from_; }  // nodes, not ranks
  [[nodiscard]] unsigned to() const noexcept { return to_; }
  [[nodiscard]] const LinkStats& stats() const noexcept { return stats_; }

  // For packets sent from now on.
  void set_faults(const Faults& faults) noexcept;
  // Nothing enters and nothing arrives from `begin` to before `end`. Replaces an earlier one.
  void black_out(Nanos begin, Nanos end) noexcept;

  // Whether transmit() is to fail this time.
  [[nodiscard]] bool refuses() noexcept;
  void count_busy() noexcept { ++stats_.busy; }
  void count_filtered() noexcept { ++stats_.filtered; }
  void count_queue_drop() noexcept { ++stats_.queue_drops; }

  // A packet leaves its sender at `now`: puts a copy of it, or two, or none, into `queue`, to arrive at `due` or later.
  void enter(std::span<const uint8_t> packet, size_t wire_bytes, Nanos now, Nanos due, SimPool& pool, SimQueue& queue);
  // It is there at buffer->due; false if it was lost on arrival.
  [[nodiscard]] bool leave(SimBuffer* buffer, SimPool& pool) noexcept;

 private:
  [[nodiscard]] bool dark(Nanos time) const noexcept { return time >= dark_begin_ && time < dark_end_; }
  void launch(std::span<const uint8_t> packet, Nanos due, const FaultDice::Fate& fate, SimPool& pool, SimQueue& queue);
  void corrupt(SimBuffer& buffer, uint64_t seed) noexcept;

  unsigned from_;
  unsigned to_;
  Faults faults_;
  FaultChances chances_;  // of them, those that the dice decide
  bool faulty_ = false;   // any of them
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

  // Takes a copy of `packet`.
  void send(std::span<const uint8_t> packet, Nanos now, SimPool& pool);

  // When the next packet arrives, or kNever.
  [[nodiscard]] Nanos due() const noexcept { return wire_.due(); }
  // Takes that packet; null if it was lost on arrival.
  [[nodiscard]] SimBuffer* arrive(SimPool& pool) noexcept;

 private:
  SimWire wire_;
};

}  // namespace gradlane
