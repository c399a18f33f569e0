// defaults.cc - what an exchange costs if nothing was calibrated
#include "collectives/cost/calibration.h"
#include "compress/codec.h"

namespace gradlane {
namespace {

// Times are ns per element from `gradlane codecs --measure --data gauss-0.01`. It gives shares of memcpy's speed, which
// are converted at 42 GB/s, that of a Xeon with AVX-512 and GFNI. Bytes are those of one contribution
// of such floats, which do not depend on the machine.
//
// A sum of k independent contributions is sqrt(k) times as large: half a bit more for each doubling, if the codec adds
// integers. The figures are slightly more, because the largest of a group counts (from simulations with 4 to 64 ranks).
// Counts of votes grow by less than a bit. The cost of a packet for a codec is that of cutting its
// encoded elements to the length of a packet.
constexpr double kHalfBit = 0.072;
constexpr double kVote = 0.105;

struct UsualCodec {
  const char* name;
  double encode_ns, decode_ns, merge_ns, look_ns, packet_ns;
  double bytes, doubling, density, results, most_bytes;
  bool owners;
};
constexpr UsualCodec kUsual[] = {
    {"raw", 0.12, 0.096, 0.16, 0, 3, 4, 0, 0, 0, 4, false},
    {"pack", 0.43, 0.37, 0.95, 0, 30, 3.49, 0, 0, 0, 4.04, false},
    {"bf16", 0.12, 0.078, 0.21, 0, 3, 2, 0, 0, 0, 2, false},
    {"fp16", 0.092, 0.079, 0.13, 0, 3, 2, 0, 0, 0, 2, false},
    {"fixed:10", 0.15, 0.12, 0.25, 0, 347, 0.6474, kHalfBit, 0, 0, 4.1, false},
    {"fixed:7", 0.15, 0.12, 0.23, 0, 347, 0.3007, kHalfBit, 0, 0, 4.1, false},
    {"inceptionn:10", 0.17, 0.3, 0.27, 0, 560, 1.1758, 0.07, 0, 0, 4.25, false},
    {"terngrad", 0.34, 0.12, 0.46, 0.5, 347, 0.2655, kHalfBit, 0, 0, 4.1, false},
    {"tbq:7", 0.17, 0.12, 0.28, 0, 347, 0.267, kHalfBit, 0, 0, 4.1, false},
    {"signsgd", 0.15, 0.17, 0.3, 0, 347, 0.1364, kVote, 0, 0.1364, 4.1, false},
    {"topk:1%", 0.21, 0.098, 0.33, 0.31, 347, 0.0555, 0, 0.01, 0, 4.1, false},
    {"dgc:1%", 0.23, 0.098, 0.35, 0.32, 347, 0.0555, 0, 0.01, 0, 4.1, false},
    {"dgc:0.1%", 0.16, 0.081, 0.22, 0.31, 347, 0.0105, 0, 0.001, 0, 4.1, false},
    {"graddrop:1%", 0.21, 0.1, 0.33, 0.31, 347, 0.0555, 0, 0.01, 0, 4.1, false},
    {"onebit", 0.63, 0.19, 0.22, 0, 3, 0.1705, 0, 0, 0, 4.1, true},
    {"qsgd:4", 0.35, 0.16, 0.2, 0, 3, 0.5228, 0, 0, 0, 4.1, true},
    {"int8", 0.31, 0.14, 0.16, 0, 3, 1.0228, 0, 0, 0, 4.1, true},
    {"fp8", 0.5, 0.18, 0.23, 0, 3, 1.0228, 0, 0, 0, 4.1, true},
};

std::vector<CodecCost> usual_codecs() {
  std::vector<CodecCost> codecs;
  for (const UsualCodec& each : kUsual) {
    CodecCost& cost = codecs.emplace_back();
    cost.name = each.name;
    cost.encode_ns = each.encode_ns;
    cost.decode_ns = each.decode_ns;
    cost.merge_ns = each.merge_ns;
    cost.look_ns = each.look_ns;
    cost.packet_ns = each.packet_ns;
    cost.bytes = each.bytes;
    cost.doubling = each.doubling;
    cost.density = each.density;
    cost.results = each.results;
    cost.most_bytes = each.most_bytes;
    cost.owners = each.owners;
    cost.exact = find_codec(each.name).row().exact();
  }
  return codecs;
}

// Measured with four nodes, 16 MiB, `raw` and 1 Gb/s: one GB of tensor takes 21 s (UDP) or 34 s
// (AF_PACKET) of CPU time. So it takes 4.9 or 8.0 us to receive and to send a packet of 1408 bytes. The exchange takes
// 0.5 us of it (243 and 183 ns, and 178 and 94 ns of checksums). One call for UDP carries 21 packets.
PacketCost usual_packets(PlanPort port) {
  PacketCost packets;
  packets.reduce_ns = 243 + 178;
  packets.gather_ns = 183 + 94;
  switch (port) {
    case PlanPort::kUdp:
      packets.send_ns = 1900;
      packets.receive_ns = 1900;
      packets.call_ns = 6000;
      packets.per_call = 21;
      break;
    case PlanPort::kPackets:
      packets.send_ns = 3700;
      packets.receive_ns = 3700;
      break;
    case PlanPort::kCard:
      packets.send_ns = 40;
      packets.receive_ns = 40;
      break;
  }
  return packets;
}

}  // namespace

const char* plan_port_name(PlanPort port) noexcept {
  switch (port) {
    case PlanPort::kUdp:
      return "udp";
    case PlanPort::kPackets:
      return "packets";
    case PlanPort::kCard:
      break;
  }
  return "card";
}

Calibration usual_calibration(PlanPort port) {
  Calibration usual;
  usual.codecs = usual_codecs();
  usual.packets = usual_packets(port);
  usual.port = plan_port_name(port);
  usual.link.latency = port == PlanPort::kCard ? 10e-6 : 30e-6;
  usual.start = 20e-6;
  return usual;
}

Calibration free_calibration(double latency, double bandwidth) {
  Calibration free;
  free.codecs = usual_codecs();
  for (CodecCost& each : free.codecs) {
    each.encode_ns = each.decode_ns = each.merge_ns = each.look_ns = each.packet_ns = 0;
  }
  free.link.latency = latency;
  free.link.bandwidth = bandwidth;
  free.memory = 0;
  free.lambda = 1;
  return free;
}

Calibration ideal_calibration(const Calibration& calibration) {
  constexpr double kHeaders = 52;   // IP and TCP, with time stamps
  constexpr double kEthernet = 38;  // from the preamble to the gap
  Calibration ideal = free_calibration(calibration.link.latency, calibration.link.bandwidth);
  ideal.packets.payload = calibration.packets.mtu() - kHeaders;
  ideal.packets.overhead = kHeaders + kEthernet;
  return ideal;
}

}  // namespace gradlane
