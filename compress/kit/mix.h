// mix.h - 64 bits that depend on all of 64 bits: where random numbers come from (kernels, and the rows of codecs)
//
// In an unnamed namespace for the same reason as layout.h.
#pragma once

#include <cstdint>

namespace gradlane {
namespace {

// A step of SplitMix64 (Steele et al., OOPSLA 2014).
constexpr uint64_t mixed(uint64_t seed) {
  seed += 0x9e3779b97f4a7c15;
  seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9;
  seed = (seed ^ seed >> 27) * 0x94d049bb133111eb;
  return seed ^ seed >> 31;
}

}  // namespace
}  // namespace gradlane
