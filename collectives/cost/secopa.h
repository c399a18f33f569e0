// secopa.h - SeCoPa, the planner of HiPress (SOSP 2021), as in its paper and its code, for comparison (pure)
#pragma once

#include <optional>

namespace gradlane {

// The time of a kernel or a transfer: ms = overhead below a threshold, else slope * elements + constant. The threshold
// is where the line reaches the overhead, (overhead - constant) / slope, or 0 if that is negative.
struct SecopaCurve {
  double slope = 0;     // ms per element
  double constant = 0;  // ms
  double overhead = 0;  // ms

  [[nodiscard]] double ms(double elements) const noexcept;
};

// The costs of a cluster. The constants that HiPress ships are those of V100s on 56 Gb/s, measured once by hand.
struct SecopaCosts {
  SecopaCurve encode;
  SecopaCurve decode;
  SecopaCurve send;  // between two nodes of a ring
  // For a parameter server whose nodes are all workers: all send to one (gather), and one sends to all (broadcast).
  SecopaCurve gather;
  SecopaCurve broadcast;
  double merge = 0;  // ms for each contribution that is added; 0 in HiPress' code
  double ratio = 1.0 / 16;
};

// Returns the constants of HiPress' code. Gather and broadcast were measured for 4, 8 and 16 nodes: returns none for
// other numbers.
[[nodiscard]] std::optional<SecopaCosts> hipress_costs(unsigned nodes) noexcept;

enum class SecopaChoice { kRing, kServers };

struct SecopaPlan {
  bool compress = false;
  unsigned partitions = 1;  // K
  double ms = 0;
};

// Returns the fastest plan by section 3.3 of the paper, over all K in 1..N, compressed or not. If plans are equal, it
// prefers not to compress, and then the smaller K.
//
//   ring     raw 2(N-1) S(m/K);        compressed 2(N-1) S(r m/K) + N E(m/K) + N D(r m/K)
//   servers  raw G(m/K) + B(m/K);      compressed G(r m/K) + B(r m/K) + min(K+1, N) E(m/K)
//                                                 + min(N-1+K, 2(N-1)) D(r m/K)
//
// Both have (N-1) merge in addition. S, E, D, G, B: send, encode, decode, gather, broadcast; m: elements; r: ratio.
[[nodiscard]] SecopaPlan secopa_plan(const SecopaCosts& costs, SecopaChoice way, unsigned nodes,
                                     double elements) noexcept;

// Returns the number of elements from which on compression is faster, found by bisection up to `most`. None: it is not
// faster even at `most`.
[[nodiscard]] std::optional<double> secopa_threshold(const SecopaCosts& costs, SecopaChoice way, unsigned nodes,
                                                     double most = 1e9) noexcept;

}  // namespace gradlane
