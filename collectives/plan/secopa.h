// secopa.h - SeCoPa, the plan of HiPress (SOSP 2021), as its paper and its code have it: to be compared with (pure)
#pragma once

#include <optional>

namespace gradlane {

// A time that a kernel or a transfer takes: ms = overhead below a threshold, else slope * elements + constant. The
// threshold is where the line gets to the overhead, (overhead - constant) / slope, or 0. There it may jump.
struct SecopaCurve {
  double slope = 0;     // ms per element
  double constant = 0;  // ms
  double overhead = 0;  // ms

  [[nodiscard]] double ms(double elements) const noexcept;
};

// What a cluster takes; the constants that HiPress ships are of V100s on 56 Gb/s, measured once by hand.
struct SecopaCosts {
  SecopaCurve encode;
  SecopaCurve decode;
  SecopaCurve send;  // between two nodes of a ring
  // A parameter server whose nodes are all workers: all send to one (gather), and one to all (broadcast).
  SecopaCurve gather;
  SecopaCurve broadcast;
  double merge = 0;  // ms for each contribution that is added: 0 in HiPress' code
  double ratio = 1.0 / 16;
};

// Those of HiPress' code. Gather and broadcast were measured for 4, 8 and 16 nodes; none for others.
[[nodiscard]] std::optional<SecopaCosts> hipress_costs(unsigned nodes) noexcept;

enum class SecopaWay { kRing, kServers };

struct SecopaPlan {
  bool compress = false;
  unsigned partitions = 1;  // K
  double ms = 0;
};

// Section 3.3 of the paper: of all K in 1..N, compressed or not, the one that takes the least; of equal ones
// uncompressed, and then the smaller K.
//
//   ring     raw 2(N-1) S(m/K);        compressed 2(N-1) S(r m/K) + N E(m/K) + N D(r m/K)
//   servers  raw G(m/K) + B(m/K);      compressed G(r m/K) + B(r m/K) + min(K+1, N) E(m/K)
//                                                 + min(N-1+K, 2(N-1)) D(r m/K)
//
// and (N-1) merge in both. S, E, D, G, B: send, encode, decode, gather, broadcast; m: elements; r: ratio.
[[nodiscard]] SecopaPlan secopa_plan(const SecopaCosts& costs, SecopaWay way, unsigned nodes, double elements) noexcept;

// The least number of elements from which on to compress pays: found by bisection up to `most`. None: it does not even
// there.
[[nodiscard]] std::optional<double> secopa_threshold(const SecopaCosts& costs, SecopaWay way, unsigned nodes,
                                                     double most = 1e9) noexcept;

}  // namespace gradlane
