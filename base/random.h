// random.h - SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): random numbers that are the same everywhere
#pragma once

#include <cstdint>

namespace gradlane {

// A generator of random numbers. The seed may be any 64 bits, and every bit of it matters. Not for secrets.
class Random {
 public:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15;

  constexpr explicit Random(uint64_t seed) noexcept : state_(seed) {}

  constexpr uint64_t next() noexcept { return mix(state_ += kStep); }
  // Returns true with probability p.
  constexpr bool chance(double p) noexcept { return static_cast<double>(next() >> 11) * 0x1p-53 < p; }
  // Returns a number from 0 to n - 1; n > 0. The bias for n far below 2^64 does not matter here.
  constexpr uint64_t below(uint64_t n) noexcept { return next() % n; }

  // A bijection whose results look random, for hashes. mix(0) is 0.
  static constexpr uint64_t mix(uint64_t z) noexcept {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // Returns the seed of generator `which`, for code that has many generators.
  static constexpr uint64_t mix(uint64_t seed, uint64_t which) noexcept { return mix(mix(seed + kStep) + which); }

 private:
  uint64_t state_;
};

}  // namespace gradlane
