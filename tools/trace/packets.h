// packets.h - sampled packets, found again where they came (pure functions)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/trace/recording.h"

namespace gradlane {

struct SampledPacket {
  const NodeRecording* node = nullptr;  // that sent it
  unsigned lane = 0;
  unsigned from = 0;  // ranks
  unsigned to = 0;
  uint32_t sequence = 0;
  uint64_t bytes = 0;
  Nanos sent = 0;  // the last time before it came
  Nanos came = 0;  // 0: that is not known, though its receiver was asked
};

// In the order in which they were sent. Those to nodes that were not asked are left out.
[[nodiscard]] std::vector<SampledPacket> sampled_packets(std::span<const NodeRecording> nodes);

}  // namespace gradlane
