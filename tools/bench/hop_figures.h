// hop_figures.h - cost of a ring's hops per packet with a codec, without I/O (benchmarks only)
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "compress/codec.h"

namespace gradlane {

// One kind of hop with one codec. Times are per packet, in ns.
struct HopFigures {
  const char* hop;
  std::string codec;
  std::string isa;
  size_t burst;
  size_t bursts;
  double packet_bytes;
  double floats;
  double sent;   // packets sent per packet that came: sums grow from hop to hop
  double fused;  // share of the runs that the exchange passed on in one pass
  double total;
  double codec_time;
  double cut;  // part of engine(): what it costs the codec to cut sums to packets and to join them
  double crc;
  double copy;

  [[nodiscard]] double engine() const { return total - codec_time - crc; }
};

// The duration of a measurement.
struct HopEffort {
  size_t block_packets;  // packets in each of the four blocks of a tensor
  size_t operations;
  bool trace = false;  // measures while a trace is taken
};

// Measures hops that add ("reduce") and hops that pass on results ("gather"). `mtu` counts from the link header on.
// `burst` is the number of packets between two polls. Tensors repeat `pattern`, which must fill at least a packet.
// Throws SetupError if the codec makes so few packets of it that nothing can be timed.
[[nodiscard]] std::vector<HopFigures> hop_figures(const Codec& codec, size_t mtu, size_t burst, const HopEffort& effort,
                                                  std::span<const float> pattern);

}  // namespace gradlane
