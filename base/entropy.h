// entropy.h - 64 bits that nobody knows beforehand, from the kernel (control threads)
#pragma once

#include <sys/random.h>

#include <cstdint>

namespace gradlane {

// std::random_device does as well, but GCC 12's wants glibc 2.36, which the wheel shall run without.
[[nodiscard]] inline uint64_t random_bits() noexcept {
  uint64_t bits = 0;
  while (getrandom(&bits, sizeof(bits), 0) != static_cast<ssize_t>(sizeof(bits))) {
  }
  return bits;
}

}  // namespace gradlane
