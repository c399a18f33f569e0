// entropy.h - 64 unpredictable bits from the kernel (control threads)
#pragma once

#include <sys/random.h>

#include <cstdint>

namespace gradlane {

// Returns random bits of getrandom(). std::random_device would do, but in GCC 12 it needs glibc 2.36, and the wheel
// must run with older ones.
[[nodiscard]] inline uint64_t random_bits() noexcept {
  uint64_t bits = 0;
  while (getrandom(&bits, sizeof(bits), 0) != static_cast<ssize_t>(sizeof(bits))) {
  }
  return bits;
}

}  // namespace gradlane
