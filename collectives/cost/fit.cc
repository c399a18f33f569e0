// fit.cc - figures of a calibration, computed from measured times (pure)
#include "collectives/cost/fit.h"

#include <algorithm>
#include <cmath>

namespace gradlane {
namespace {

constexpr double kNanosecond = 1e-9;

// Returns the calibration for one lane, without contention.
Calibration on_one_core(Calibration calibration) {
  calibration.lanes = 1;
  calibration.contention = 1;
  return calibration;
}

AllReduceTime raw_time(const Calibration& calibration, const AllReduceShape& shape) {
  const CodecCost* const raw = calibration.find("raw");
  return raw == nullptr ? AllReduceTime{} : all_reduce_time(calibration, *raw, shape);
}

}  // namespace

double wire_bytes(const PacketCost& packets, double bytes) noexcept {
  return bytes + std::ceil(bytes / packets.payload) * packets.overhead;
}

double bandwidth_of(const TimedBytes& less, const TimedBytes& more, double delay) noexcept {
  constexpr double kFasterAtMost = 1.1;
  constexpr double kDelayAtMost = 0.9;  // of the time
  if (more.seconds <= 0) return 0;
  const double whole = more.bytes / (more.seconds - std::min(delay, kDelayAtMost * more.seconds));
  const double seconds = more.seconds - less.seconds;
  const double bytes = more.bytes - less.bytes;
  if (seconds <= 0 || bytes <= 0 || bytes / seconds > kFasterAtMost * whole) return whole;
  return bytes / seconds;
}

double port_ns_of(const Calibration& calibration, const AllReduceShape& shape, double busy, double packets) {
  Calibration without = on_one_core(calibration);
  without.packets.send_ns = without.packets.receive_ns = without.packets.call_ns = 0;
  const AllReduceTime time = raw_time(without, shape);
  if (packets <= 0 || time.sent_packets <= 0) return 0;
  const double alone = busy / std::max(1.0, calibration.contention);  // without the contention of the workers
  return std::max(0.0, alone / packets / kNanosecond - (time.codec + time.packets) / time.sent_packets / kNanosecond);
}

double place_ns_of(const Calibration& calibration, const CodecCost& codec, const AllReduceShape& shape,
                   const TimedCodec& timed) {
  constexpr double kLinkAtMost = 0.7;  // of the time
  CodecCost without = codec;
  without.place_ns = 0;
  const AllReduceTime time = all_reduce_time(calibration, without, shape);
  if (shape.elements <= 0 || !std::isfinite(time.seconds)) return 0;
  // Lanes share the elements, and slow each other down.
  const double cores = std::max(1U, calibration.lanes) / std::max(1.0, calibration.contention);
  const double busiest = std::max({time.link, time.codec + time.packets, time.memory});
  const double around = std::max(0.0, time.seconds - busiest);
  double core = timed.busy / std::max(1U, calibration.lanes);
  if (time.link < kLinkAtMost * timed.seconds) core = std::max(core, timed.seconds - around);
  return std::max(0.0, (core - time.codec - time.packets) * cores / shape.elements / kNanosecond);
}

double start_of(const Calibration& calibration, const CodecCost& codec, const AllReduceShape& shape, double seconds) {
  Calibration without = calibration;
  without.start = 0;
  return std::max(0.0, seconds - all_reduce_time(without, codec, shape).seconds);
}

double latency_of(double round_trip, double port_ns) noexcept {
  constexpr double kLeast = 0.1;
  const double half = round_trip / 2;
  return std::max(half - port_ns * kNanosecond, kLeast * half);
}

}  // namespace gradlane
