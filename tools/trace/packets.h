// packets.h - sampled packets, matched between sender and receiver (pure functions)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/trace/recording.h"

namespace gradlane {

struct SampledPacket {
  const NodeRecording* node = nullptr;  // node that sent it
  unsigned lane = 0;
  unsigned from = 0;  // ranks
  unsigned to = 0;
  uint32_t sequence = 0;
  uint64_t bytes = 0;
  Nanos sent = 0;  // time when it was last sent before it arrived
  Nanos came = 0;  // time when it arrived; 0: unknown, although its receiver was asked
};

// Returns packets in the order in which they were sent. Packets to nodes that were not asked are left out.
[[nodiscard]] std::vector<SampledPacket> sampled_packets(std::span<const NodeRecording> nodes);

}  // namespace gradlane
