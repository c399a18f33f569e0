// mix.h - a function that mixes 64 bits: each bit of the result depends on all of them, as random numbers need it
// (kernels, and the rows of codecs)
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include <cstdint>

namespace gradlane {
namespace {

// Does a step of SplitMix64 (Steele et al., OOPSLA 2014).
constexpr uint64_t mixed(uint64_t seed) {
  seed += 0x9e3779b97f4a7c15;
  seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9;
  seed = (seed ^ seed >> 27) * 0x94d049bb133111eb;
  return seed ^ seed >> 31;
}

}  // namespace
}  // namespace gradlane
