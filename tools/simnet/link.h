// link.h - one direction of a simulated cable: bandwidth, delay, a drop-tail queue, and faults by seed
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/random.h"
#include "base/time.h"
#include "tools/simnet/pool.h"

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

// Packets leave one after the other at the link's rate, exactly over time and rounded down to a nanosecond each, and
// arrive `delay` after their last bit left. What is lost has used its share of the rate, but for what the queue drops.
class SimLink {
 public:
  SimLink(unsigned from, unsigned to, uint64_t seed) : from_(from), to_(to), random_(seed) {}

  [[nodiscard]] unsigned from() const noexcept { return from_; }  // nodes, not ranks
  [[nodiscard]] unsigned to() const noexcept { return to_; }
  [[nodiscard]] const LinkStats& stats() const noexcept { return stats_; }

  // For packets sent from now on.
  void set_model(const LinkModel& model) noexcept { model_ = model; }
  void set_faults(const Faults& faults) noexcept;
  // Nothing enters and nothing arrives from `begin` to before `end`. Replaces an earlier one.
  void black_out(Nanos begin, Nanos end) noexcept;

  // Whether transmit() is to fail this time.
  [[nodiscard]] bool refuses() noexcept;
  void count_filtered() noexcept { ++stats_.filtered; }

  // Takes a copy of `packet`.
  void send(std::span<const uint8_t> packet, Nanos now, SimPool& pool);

  // When the next packet arrives, or kNever.
  [[nodiscard]] Nanos due() const noexcept { return queue_.due(); }
  // Takes that packet; null if it was lost on arrival.
  [[nodiscard]] SimBuffer* arrive(SimPool& pool) noexcept;

 private:
  [[nodiscard]] bool dark(Nanos time) const noexcept { return time >= dark_begin_ && time < dark_end_; }
  bool occupy(size_t wire_bytes, Nanos now) noexcept;
  void launch(std::span<const uint8_t> packet, Nanos due, SimPool& pool);
  void corrupt(SimBuffer& buffer) noexcept;

  unsigned from_;
  unsigned to_;
  LinkModel model_;
  Faults faults_;
  bool faulty_ = false;  // any of them
  Nanos dark_begin_ = kNever;
  Nanos dark_end_ = kNever;
  Nanos free_at_ = 0;           // when the last packet has left
  uint64_t free_fraction_ = 0;  // plus this, in units of 1 ns / bits_per_second
  SimQueue queue_;
  Random random_;
  LinkStats stats_;
};

}  // namespace gradlane
