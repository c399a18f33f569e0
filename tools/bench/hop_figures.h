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
  double sent;   // packets sent per packet received: sums grow from hop to hop
  double fused;  // share of the runs that the exchange decoded, added and encoded in one pass, or forwarded unchanged
  double total;
  double codec_time;
  double cut;  // part of engine(): the codec's cost of cutting sums at the ends of packets, and of joining them
  double crc;
  double copy;

  [[nodiscard]] double engine() const { return total - codec_time - crc; }
};

// Determines how long a measurement takes.
struct HopEffort {
  size_t block_packets;  // packets in each of the four blocks of a tensor
  size_t operations;
  bool trace = false;  // measures while a trace is taken
};

// Measures hops that add ("reduce") and hops that forward results ("gather"). `mtu` counts from the link header on.
// `burst` is the number of packets between two polls. Tensors repeat `pattern`, which must fill at least a packet.
// Throws SetupError if the encoded tensor has too few packets to time anything.
[[nodiscard]] std::vector<HopFigures> hop_figures(const Codec& codec, size_t mtu, size_t burst, const HopEffort& effort,
                                                  std::span<const float> pattern);

}  // namespace gradlane
