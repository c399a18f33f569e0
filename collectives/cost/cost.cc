// cost.cc - the time of one all-reduce, from figures of hosts and links (pure)
#include "collectives/cost/cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gradlane {
namespace {

constexpr double kNano = 1e-9;
constexpr double kFloat = 4;
// Elements in a granule. The blocks of ranks are multiples of it.
constexpr double kGranule = 32;

// The work of the busiest rank in one stage, and the time that one packet takes through the stage.
struct PlanStage {
  double codec_ns = 0;
  double bytes = 0;     // bytes of blocks that travel in one direction (the one that has more)
  double reduced = 0;   // packets of contributions or sums that arrive and are sent on
  double gathered = 0;  // packets of results that arrive and are sent on
  // packets of both kinds that one direction carries one after the other; 0: `reduced` and `gathered` together
  double sent = 0;
  double encoded = 0;   // packets that are encoded here
  double ways = 1;      // share of the port's work per packet: 0.5 if packets that arrive are not sent on, else 1
  double elements = 0;  // elements of the tensor that are read and written
  double path = 0;      // time of a packet through all hops, in s
  double first = 0;     // part of `path` for the first hop, in s
};

double packets_of(const Calibration& calibration, double bytes) {
  return std::max(1.0, std::ceil(bytes / calibration.packets.payload));
}

// Average length of the blocks that are not empty, in elements, and their number. A tensor of fewer granules than ranks
// has one granule per block.
struct PlanBlocks {
  double elements;
  double count;
};
PlanBlocks blocks_of(double elements, double ranks) {
  const double granules = std::ceil(elements / kGranule);
  if (granules >= ranks) return {elements / ranks, ranks};
  return {std::min(elements, kGranule), granules};
}

double port_ns(const PacketCost& packets) {
  return packets.send_ns + packets.receive_ns + 2 * packets.call_ns / std::max(packets.per_call, 1.0);
}

// One hop of blocks that are cut into packets.
struct PlanHop {
  double block_bytes;
  double block_ns;     // time of the codec
  double exchange_ns;  // time of the exchange per packet
  double senders = 1;  // number of ranks whose packets go through one port, one after the other
};

// Adds a hop of one packet to the path. One port sends it. When all of it has arrived, another port sends it on, after
// the packets of other senders.
void add_hop(const Calibration& calibration, const PlanHop& hop, PlanStage& stage) {
  const PacketCost& packet = calibration.packets;
  const double packets = packets_of(calibration, hop.block_bytes);
  const double wire = hop.block_bytes / packets + packet.overhead;
  const double ns = hop.block_ns / packets + port_ns(packet) + hop.exchange_ns;
  const double bandwidth = calibration.link.bandwidth;
  const double time =
      calibration.link.latency + (bandwidth > 0 ? (hop.senders + 1) * wire / bandwidth : 0) + kNano * hop.senders * ns;
  if (stage.path == 0) stage.first = time;
  stage.path += time;
}

// Part of an all-reduce in a ring of `ranks`: a reduce-scatter, an all-gather or both. Each rank begins with the sum of
// `base` contributions, and the result has `total` contributions.
struct RingPart {
  double elements;
  double ranks;
  double base;
  double total;
  bool reduce;
  bool gather;
};

PlanStage ring_stage(const Calibration& calibration, const CodecCost& codec, const RingPart& part) {
  const PlanBlocks block = blocks_of(part.elements, part.ranks);
  const double turns = part.ranks - 1;
  // A rank sends a block in each turn. If some blocks are empty, it sends only in that share of the turns.
  const double sends = turns * block.count / part.ranks;
  PlanStage stage;
  const PacketCost& packet = calibration.packets;
  if (part.reduce) {
    for (double k = 1; k <= turns; ++k) {
      const double bytes = block.elements * codec.width(k * part.base);
      const double merging = block.elements * codec.merge_ns;
      add_hop(calibration, {bytes, merging, packet.reduce_ns + codec.packet_ns}, stage);
      stage.bytes += bytes * sends / turns;
      stage.reduced += packets_of(calibration, bytes) * sends / turns;
    }
    stage.encoded += stage.reduced;
    stage.codec_ns += block.elements * (codec.look_ns * block.count + codec.encode_ns + codec.merge_ns * sends);
  }
  if (part.gather) {
    const double bytes = block.elements * codec.result_width(part.total);
    const PlanHop hop = {bytes, block.elements * codec.decode_ns, packet.gather_ns};
    for (double k = 1; k <= turns; ++k) add_hop(calibration, hop, stage);
    stage.bytes += bytes * sends;
    stage.gathered += packets_of(calibration, bytes) * sends;
    stage.codec_ns += block.elements * codec.decode_ns * sends;
  }
  stage.elements = part.elements;
  return stage;
}

// Returns the stage of direct: every block has an owner. All others send to it at once, and it sends to all.
PlanStage direct_stage(const Calibration& calibration, const CodecCost& codec, double elements, double world) {
  const PlanBlocks block = blocks_of(elements, world);
  const double others = world - 1;
  const double owns = block.count / world;  // blocks per rank; below 1 if some ranks have none
  const double there = block.elements * codec.width(1);
  const double back = block.elements * codec.result_width(world);
  const PacketCost& packet = calibration.packets;
  const double decoding = block.elements * codec.decode_ns;
  PlanStage stage;
  add_hop(calibration, {there, decoding, packet.reduce_ns, others}, stage);
  add_hop(calibration, {back, decoding, packet.gather_ns + codec.packet_ns, others}, stage);
  stage.bytes = others * owns * (there + back);
  stage.reduced = others * owns * packets_of(calibration, there);
  stage.gathered = others * owns * packets_of(calibration, back);
  stage.encoded = stage.reduced + owns * packets_of(calibration, back);
  stage.codec_ns = elements * codec.look_ns + others * owns * block.elements * (codec.encode_ns + codec.decode_ns) +
                   block.elements * owns * codec.encode_ns + others * owns * block.elements * codec.decode_ns;
  stage.elements = elements;
  return stage;
}

// Returns the stage of an aggregator: all ranks send to one, which sends to all. Its port carries one direction after
// the other, or both at once if it streams.
PlanStage aggregator_stage(const Calibration& calibration, const CodecCost& codec, double elements, double world,
                           bool stream) {
  const double others = world - 1;
  const double there = elements * codec.width(1);
  const double back = elements * codec.result_width(world);
  const PacketCost& packet = calibration.packets;
  PlanStage stage;
  add_hop(calibration, {there, elements * codec.decode_ns, packet.reduce_ns, others}, stage);
  add_hop(calibration, {back, elements * codec.decode_ns, packet.gather_ns, others}, stage);
  stage.bytes = others * (stream ? std::max(there, back) : there + back);
  stage.ways = 0.5;
  stage.reduced = others * packets_of(calibration, there);
  stage.gathered = others * packets_of(calibration, back);
  stage.sent = stream ? std::max(stage.reduced, stage.gathered) : stage.reduced + stage.gathered;
  stage.encoded = packets_of(calibration, back);
  stage.codec_ns =
      elements * (codec.look_ns + codec.encode_ns + others * codec.decode_ns + codec.encode_ns + codec.decode_ns);
  stage.elements = elements;
  return stage;
}

void add_stage(const Calibration& calibration, const CodecCost& codec, const PlanStage& stage, AllReduceTime& time) {
  const PacketCost& packet = calibration.packets;
  const double cores = std::max(1U, calibration.lanes) / std::max(calibration.contention, 1.0);
  const double bandwidth = calibration.link.bandwidth;
  const double sent = stage.sent > 0 ? stage.sent : stage.reduced + stage.gathered;
  const double wire = stage.bytes + sent * packet.overhead;
  const double link = bandwidth > 0 ? wire / bandwidth : 0;
  const double coding =
      kNano * (stage.codec_ns + stage.elements * codec.place_ns + stage.encoded * codec.packet_ns) / cores;
  const double packets =
      kNano * stage.ways *
      (stage.reduced * (port_ns(packet) + packet.reduce_ns) + stage.gathered * (port_ns(packet) + packet.gather_ns)) /
      cores;
  // The tensor is read once and written once, and writing reads it, too. Packets go in once and out once.
  const double memory =
      calibration.memory > 0 ? (3 * kFloat * stage.elements + 2 * stage.bytes) / calibration.memory : 0;

  const double busiest = std::max({link, coding + packets, memory / cores});
  time.seconds += std::max(busiest + stage.first, stage.path);
  time.latency += stage.path;
  time.link += link;
  time.codec += coding;
  time.packets += packets;
  time.memory += memory / cores;
  time.sent_bytes += wire;
  time.sent_packets += sent;
}

PlanLimit limit_of(const AllReduceTime& time) {
  const double core = time.codec + time.packets;
  const double busiest = std::max({time.link, core, time.memory});
  if (time.latency >= busiest) return PlanLimit::kLatency;
  if (busiest == time.link) return PlanLimit::kLink;
  if (busiest == time.memory) return PlanLimit::kMemory;
  return time.codec >= time.packets ? PlanLimit::kCodec : PlanLimit::kPackets;
}

void add_rings(const Calibration& calibration, const CodecCost& codec, const AllReduceShape& shape,
               AllReduceTime& time) {
  const double world = shape.world;
  const double group = shape.strategy.group();
  const double across = world / group;
  const RingPart parts[] = {{shape.elements, group, 1, world, true, false},
                            {shape.elements / group, across, group, world, true, true},
                            {shape.elements, group, world, world, false, true}};
  for (const RingPart& part : parts) {
    if (part.ranks > 1) add_stage(calibration, codec, ring_stage(calibration, codec, part), time);
  }
}

}  // namespace

const char* plan_limit_name(PlanLimit limit) noexcept {
  switch (limit) {
    case PlanLimit::kLatency:
      return "latency";
    case PlanLimit::kLink:
      return "link";
    case PlanLimit::kCodec:
      return "codec";
    case PlanLimit::kPackets:
      return "packets";
    case PlanLimit::kMemory:
      break;
  }
  return "memory";
}

AllReduceTime all_reduce_time(const Calibration& calibration, const CodecCost& codec, const AllReduceShape& shape) {
  using Kind = StrategyId::Kind;
  AllReduceTime time;
  const double world = shape.world;
  if (shape.world <= 1 || shape.elements <= 0) return time;
  const bool owned = shape.strategy.kind == Kind::kDirect || shape.strategy.kind == Kind::kAggregator;
  if ((codec.owners && !owned) || !strategy_fault(shape.strategy, shape.world).empty()) {
    time.seconds = std::numeric_limits<double>::infinity();
    return time;
  }
  switch (shape.strategy.kind) {
    case Kind::kRing: {
      const RingPart all = {shape.elements, world, 1, world, true, true};
      add_stage(calibration, codec, ring_stage(calibration, codec, all), time);
      break;
    }
    case Kind::kDirect:
      add_stage(calibration, codec, direct_stage(calibration, codec, shape.elements, world), time);
      break;
    case Kind::kRings:
      add_rings(calibration, codec, shape, time);
      break;
    case Kind::kAggregator:
      add_stage(calibration, codec, aggregator_stage(calibration, codec, shape.elements, world, shape.strategy.stream),
                time);
      break;
  }
  const double start = calibration.start + calibration.link.latency;
  time.latency += start;
  time.seconds += start;
  time.limit = limit_of(time);
  return time;
}

AllReduceChoice fastest(const Calibration& calibration, const CodecCost& codec, double elements, unsigned world,
                        std::span<const StrategyId> strategies) {
  AllReduceChoice best;
  best.time.seconds = std::numeric_limits<double>::infinity();
  for (const StrategyId& each : strategies) {
    const AllReduceTime time = all_reduce_time(calibration, codec, {elements, world, each});
    if (time.seconds < best.time.seconds) best = {each, time};
  }
  return best;
}

}  // namespace gradlane
