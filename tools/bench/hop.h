// hop.h - the work of a hop without the exchange: codec, CRC and memcpy on a burst of packets
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
  kReduce,  // partial sums: the rank adds its elements to them, and forwards them
  kGather,  // results: the rank stores them, and forwards them
};

// A burst of packets that all need the same kind of hop, and the elements of the timed rank. These are added to partial
// sums, and results overwrite them.
class HopBurst {
 public:
  // `tensor` holds fp32. Bursts have up to `most_packets` packets, of `mtu` bytes from the link header on.
  HopBurst(const Codec& codec, const Blocks& blocks, std::span<float> tensor, size_t mtu, size_t most_packets);

  // Reads the packets, whose buffers must stay unchanged until the last call of the functions below. Returns the kind
  // of hop that all data packets need on rank BenchRing::kTimed. Returns kNone if they need different kinds, if one is
  // not forwarded, or if not exactly `packets` packets have data. Packets without data are ignored.
  Hop look_at(std::span<const Arrival> burst, size_t packets);

  [[nodiscard]] size_t runs() const noexcept { return runs_.size(); }
  [[nodiscard]] static size_t runs_of(const Arrival& arrival) noexcept;
  [[nodiscard]] size_t floats() const noexcept { return floats_; }
  [[nodiscard]] size_t bytes() const noexcept { return bytes_; }

  // Reads a byte of each cache line of packets, elements, scratch memory and `buffers`.
  void touch(std::span<uint8_t* const> buffers) const noexcept;

  // ---- Each of these goes over all packets once, and returns a value that depends on the work.
  // Validates the payload of each run, and runs the codec over it in one call.
  size_t code() noexcept;
  // Does the work of code() as the exchange does it: cuts sums where a packet of the MTU's length is full, and joins
  // runs.
  size_t code_cut() noexcept;
  // Calculates CRC32C as often as the exchange does if it sends as many packets as it receives: once for each packet
  // received and once for each sent. A result's payload is checked only once, because it is sent unchanged.
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
  const size_t slots_;   // number of pieces of scratch memory
  const size_t stride_;  // bytes of each piece
  BenchMemory scratch_;

  Hop hop_ = Hop::kNone;
  std::vector<Data> packets_;
  std::vector<Run> runs_;
  size_t floats_ = 0;
  size_t bytes_ = 0;  // bytes of packets, from the link header on
  // Fill of the packet that code_cut() continues in the next burst.
  size_t open_bytes_ = 0;
  size_t open_floats_ = 0;
};

}  // namespace gradlane
