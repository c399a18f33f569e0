// simnet_random.h - the random numbers of a simulated network: a function of the seed, the same everywhere
#pragma once

#include <cstdint>

namespace gradlane {

// splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014). The distributions of
// the standard library differ between implementations, so it has its own.
class SimRandom {
 public:
  explicit SimRandom(uint64_t seed) : state_(seed) {}

  uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15;
    return mix(state_);
  }
  // True with probability p.
  bool chance(double p) noexcept { return static_cast<double>(next() >> 11) * 0x1p-53 < p; }
  // 0 to n - 1, n > 0. The bias for n far below 2^64 is of no account here.
  uint64_t below(uint64_t n) noexcept { return next() % n; }

  static constexpr uint64_t mix(uint64_t z) noexcept {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // A seed for one of many generators.
  static constexpr uint64_t mix(uint64_t seed, uint64_t which) noexcept {
    return mix(mix(seed + 0x9e3779b97f4a7c15) + which);
  }

 private:
  uint64_t state_;
};

}  // namespace gradlane
