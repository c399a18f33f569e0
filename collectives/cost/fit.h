// fit.h - figures of a calibration, computed from measured times (pure)
#pragma once

#include "collectives/cost/calibration.h"
#include "collectives/cost/cost.h"

namespace gradlane {

// Returns the bytes on the wire for `bytes` bytes of a tensor that is not compressed: with all headers, in full
// packets.
[[nodiscard]] double wire_bytes(const PacketCost& packets, double bytes) noexcept;

// Returns a link's bandwidth in bytes per s, from the times of two transfers over it, of which `more` is the longer
// one. It divides the difference of the bytes by the difference of the times. So costs that both have do not count:
// latency, and what a token bucket lets through at first. But if something delayed the shorter transfer, the result is
// too high. Therefore it must not exceed the rate of the longer transfer alone, less `delay` (s, a round trip), by more
// than a tenth. If it does, the function returns the rate of the longer transfer.
struct TimedBytes {
  double bytes = 0;  // on the wire
  double seconds = 0;
};
[[nodiscard]] double bandwidth_of(const TimedBytes& less, const TimedBytes& more, double delay) noexcept;

// Returns the ns that one packet takes through a port, in and out. In all-reduces of that shape without compression, a
// rank sent `packets` data packets, and its workers were busy for `busy` s in total. Contention, and the times of codec
// and exchange from `calibration`, are subtracted. The result is at least 0.
[[nodiscard]] double port_ns_of(const Calibration& calibration, const AllReduceShape& shape, double busy,
                                double packets);

// Returns CodecCost::place_ns of a codec from an all-reduce of that shape: the time per element that no other figure
// explains. It uses the busy time of a rank's workers. If the link cannot have been the limit, it uses the whole time
// instead, if that is more: then other threads used the cores, too. The result is at least 0.
struct TimedCodec {
  double seconds = 0;  // duration
  double busy = 0;     // busy time of all workers of a rank, in s
};
[[nodiscard]] double place_ns_of(const Calibration& calibration, const CodecCost& codec, const AllReduceShape& shape,
                                 const TimedCodec& timed);

// Returns Calibration::start from the time of a short all-reduce with that codec: the part that the model does not
// explain with all other figures. The result is at least 0.
[[nodiscard]] double start_of(const Calibration& calibration, const CodecCost& codec, const AllReduceShape& shape,
                              double seconds);

// Returns the latency of one direction from the round trip of a short packet, without its times in the ports of both
// ends. The result is at least a tenth of half the round trip.
[[nodiscard]] double latency_of(double round_trip, double port_ns) noexcept;

}  // namespace gradlane
