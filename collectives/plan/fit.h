// fit.h - figures of a calibration, from times that were measured (pure)
#pragma once

#include "collectives/plan/calibration.h"
#include "collectives/plan/cost.h"

namespace gradlane {

// Of so many bytes of a tensor that travel as they are: with all headers, in full packets.
[[nodiscard]] double wire_bytes(const PacketCost& packets, double bytes) noexcept;

// A link's bytes per s, from what two transfers over it took, of which the second one is longer. What both have in
// common, as latency and what a token bucket lets through at first, does not count. Where their difference says that
// the link is more than a tenth faster than the longer one was as a whole, without `delay` (s, a round trip), it is not
// believed: something has held up the shorter one.
struct TimedBytes {
  double bytes = 0;  // on the wire
  double seconds = 0;
};
[[nodiscard]] double bandwidth_of(const TimedBytes& less, const TimedBytes& more, double delay) noexcept;

// ns that one packet's way through a port takes, in and out, where workers together were busy for `busy` s with
// `packets` data packets that a rank sent in all-reduces of that shape, without compressing: what is left without
// contention, codec and exchange, which `calibration` has. At least 0.
[[nodiscard]] double port_ns_of(const Calibration& calibration, const AllReduceShape& shape, double busy,
                                double packets);

// CodecCost::place_ns of a codec, from an all-reduce of that shape: what is left of it per element, with all other
// figures known. By what the workers of a rank did; or, where the link cannot have been what took so long, by all of
// its time, in which cores were another's, too. At least 0.
struct TimedCodec {
  double seconds = 0;  // from beginning to end
  double busy = 0;     // s, of all workers of a rank
};
[[nodiscard]] double place_ns_of(const Calibration& calibration, const CodecCost& codec, const AllReduceShape& shape,
                                 const TimedCodec& timed);

// Calibration::start from the time of a short all-reduce with that codec: what the model, with all other figures, does
// not explain. At least 0.
[[nodiscard]] double start_of(const Calibration& calibration, const CodecCost& codec, const AllReduceShape& shape,
                              double seconds);

// One way, from the round trip of a short packet, whose ways through the ports of both ends are no part of it. At least
// a tenth of the half.
[[nodiscard]] double latency_of(double round_trip, double port_ns) noexcept;

}  // namespace gradlane
