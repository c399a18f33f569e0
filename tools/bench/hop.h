// hop.h - the work of a hop apart from the exchange: what codec, CRC and memcpy take for a burst of packets
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/exchange/blocks.h"
#include "collectives/wire.h"
#include "compress/codec.h"
#include "tools/bench/memory.h"
#include "tools/bench/ring.h"

namespace gradlane {

enum class Hop : uint8_t {
  kNone,    // anything else
  kReduce,  // partial sums, added to and passed on
  kGather,  // results, stored and passed on
};

// A burst that is nothing but one of the two, and the elements that it is added to, or stored at.
class HopBurst {
 public:
  // Of a tensor of fp32. Bursts have up to `most_packets` packets, of `mtu` bytes from the link header on.
  HopBurst(const Codec& codec, const Blocks& blocks, std::span<float> tensor, size_t mtu, size_t most_packets);

  // Looks at the packets, which must stay until the last call below. kNone unless they are `packets` data packets that
  // all pass rank BenchRing::kTimed in the same way, and perhaps some without data.
  Hop look_at(std::span<const Arrival> burst, size_t packets);

  [[nodiscard]] size_t runs() const noexcept { return runs_.size(); }
  [[nodiscard]] static size_t runs_of(const Arrival& arrival) noexcept;
  [[nodiscard]] size_t floats() const noexcept { return floats_; }
  [[nodiscard]] size_t bytes() const noexcept { return bytes_; }

  // Reads a byte of each cache line of packets, elements, scratch memory and `buffers`.
  void touch(std::span<uint8_t* const> buffers) const noexcept;

  // ---- Each goes once over all packets, and returns something that depends on the work.
  // The block of each run is checked, and goes through the codec in one piece.
  size_t code() noexcept;
  // The same, but sums are cut where a packet of the MTU's length is full, and joined, as the exchange does.
  size_t code_cut() noexcept;
  // CRC32C as often as the exchange calculates it if it sends as many packets as it receives: of what comes, and of
  // what goes, but for the payload of results, which is the same.
  [[nodiscard]] size_t check() const noexcept;
  size_t copy() noexcept;

 private:
  struct Run {
    std::span<const uint8_t> payload;
    std::span<float> elements;
  };
  struct Data {
    const uint8_t* bytes;
    size_t length;
  };

  [[nodiscard]] Hop kind_of(const RunHeader& header) const noexcept;
  [[nodiscard]] uint8_t* scratch(size_t slot) const noexcept { return scratch_.get() + slot % slots_ * stride_; }
  [[nodiscard]] bool add_runs(std::span<const uint8_t> bytes);

  const Codec codec_;
  const Blocks blocks_;
  const std::span<float> tensor_;
  const size_t mtu_;
  const size_t slots_;   // of scratch memory
  const size_t stride_;  // and their bytes
  BenchMemory scratch_;

  Hop hop_ = Hop::kNone;
  std::vector<Data> packets_;
  std::vector<Run> runs_;
  size_t floats_ = 0;
  size_t bytes_ = 0;  // of packets, from the link header on
  // Of the packet that code_cut() goes on filling in the next burst.
  size_t open_bytes_ = 0;
  size_t open_floats_ = 0;
};

}  // namespace gradlane
