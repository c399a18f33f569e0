// packets.cc - sampled packets, matched between sender and receiver (pure functions)
#include "tools/trace/packets.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace gradlane {
namespace {

// session, lane, from, to, sequence
using PacketKey = std::tuple<uint64_t, unsigned, unsigned, unsigned, uint32_t>;

PacketKey packet_key(const LaneRecording& lane, const TracePacket& it) {
  const auto peer = static_cast<unsigned>(it.what >> 8 & 0xffffff);
  const bool in = (it.what & TracePacket::kIn) != 0;
  return {it.session, lane.lane, in ? peer : lane.rank, in ? lane.rank : peer, static_cast<uint32_t>(it.what >> 32)};
}

}  // namespace

std::vector<SampledPacket> sampled_packets(std::span<const NodeRecording> nodes) {
  std::map<PacketKey, Nanos> came;                // first arrival
  std::set<std::pair<unsigned, unsigned>> asked;  // pairs of lane and rank that were asked
  for (const NodeRecording& node : nodes) {
    for (const LaneRecording& lane : node.lanes) {
      asked.emplace(lane.lane, lane.rank);
      for (const TracePacket& it : lane.packets) {
        if ((it.what & TracePacket::kIn) == 0) continue;
        const auto [place, added] = came.try_emplace(packet_key(lane, it), it.at);
        if (!added) place->second = std::min(place->second, it.at);
      }
    }
  }
  std::map<PacketKey, SampledPacket> sent;
  for (const NodeRecording& node : nodes) {
    // The clocks of two nodes may differ by that much. No packet is sent again within so short a time.
    const auto error = static_cast<Nanos>(2 * node.clock.error);
    for (const LaneRecording& lane : node.lanes) {
      for (const TracePacket& it : lane.packets) {
        const PacketKey key = packet_key(lane, it);
        if ((it.what & TracePacket::kIn) != 0 || !asked.contains({lane.lane, std::get<3>(key)})) continue;
        const auto arrival = came.find(key);
        const Nanos at = arrival == came.end() ? 0 : arrival->second;
        const auto [place, added] = sent.try_emplace(key);
        SampledPacket& packet = place->second;
        if (!added && (packet.sent > it.at || (at != 0 && it.at > at + error))) continue;
        packet = {.node = &node,
                  .lane = lane.lane,
                  .from = lane.rank,
                  .to = std::get<3>(key),
                  .sequence = std::get<4>(key),
                  .bytes = it.bytes,
                  .sent = it.at,
                  .came = at};
      }
    }
  }
  std::vector<SampledPacket> packets;
  for (const auto& [key, packet] : sent) packets.push_back(packet);
  std::ranges::sort(packets, {}, &SampledPacket::sent);
  return packets;
}

}  // namespace gradlane
