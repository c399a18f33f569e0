// recordings.cc - made-up traces of a ring
#include "tests/tools/trace/recordings.h"

#include "compress/codec.h"

namespace gradlane::test {
namespace {

constexpr uint64_t kSession = uint64_t{5} << 32 | 77;
constexpr Nanos kTook = 10 * kMillisecond;

void add_operation(LaneRecording& lane, unsigned nodes, uint64_t number, Nanos at) {
  const uint64_t next = (lane.rank + 1) % nodes;
  const uint64_t before = (lane.rank + nodes - 1) % nodes;
  TraceOperation operation{.session = kSession,
                           .number = number,
                           .what = static_cast<uint64_t>(CodecId::kFixed) << 16 | uint64_t{10} << 24,
                           .bytes = size_t{1} << 20,
                           .sent = size_t{1} << 17,
                           .asked = at,
                           .gathered = at,
                           .submitted = at + 50 * kMicrosecond,
                           .started = at + 50 * kMicrosecond,
                           .ready = at + 50 * kMicrosecond,
                           .ended = at + kTook,
                           .encode = 300 * kMicrosecond,
                           .add = 200 * kMicrosecond,
                           .decode = 100 * kMicrosecond};
  operation.waited[static_cast<size_t>(TraceCause::kPackets)] = kTook - 50 * kMicrosecond;
  lane.operations.push_back(operation);
  lane.waits.push_back({.session = kSession,
                        .number = number,
                        .what = static_cast<uint64_t>(TraceCause::kPackets) | before << 8,
                        .since = operation.submitted,
                        .until = operation.ended});
  const auto hop = [&](uint64_t flags, uint64_t block, uint64_t peer, Nanos from) {
    lane.hops.push_back({.session = kSession,
                         .number = number,
                         .what = flags | block << 16 | peer << 32,
                         .runs = 10,
                         .bytes = 12'000,
                         .first = from,
                         .last = from + kMillisecond});
  };
  hop(0, lane.rank, next, at + kMillisecond);
  hop(TraceHop::kIn, before, before, at + kMillisecond + 100 * kMicrosecond);
  const auto packet = [&](uint64_t flags, uint64_t peer, Nanos when) {
    lane.packets.push_back(
        {.session = kSession, .what = flags | peer << 8 | (number * 128) << 32, .bytes = 1400, .at = when});
  };
  packet(0, next, at + kMillisecond);
  packet(TracePacket::kIn, before, at + kMillisecond + 100 * kMicrosecond);
}

}  // namespace

std::vector<NodeRecording> ring_recording(unsigned nodes, unsigned operations) {
  std::vector<NodeRecording> ring(nodes);
  for (unsigned node = 0; node < nodes; ++node) {
    ring[node].node = node;
    ring[node].nodes = nodes;
    ring[node].clock.error = 1000;
    LaneRecording& lane = ring[node].lanes.emplace_back();
    lane.rank = node;
    for (uint64_t number = 0; number < operations; ++number) {
      add_operation(lane, nodes, number, kSecond + number * 11 * kMillisecond);
    }
  }
  return ring;
}

}  // namespace gradlane::test
