// int8.h - codec int8: the nearest of 255 values that are evenly spread from -m to m, m the largest magnitude of a
// chunk
//
// (The per-row int8 of torchft and others is similar.)
#pragma once

#include "compress/codecs/chunks.h"

namespace gradlane {
namespace {

struct Int8 {
  static constexpr size_t kHeads = 1;  // the step: m / 127
  static unsigned bits(const CodecParams&) { return 8; }

  struct Measure : Largest {
    void heads(const CodecParams&, size_t, float* heads) const { heads[0] = step_of(highest_of(largest), 127); }
  };

  Int8(const CodecParams&, const float* heads) : step(all(heads[0])), per_one(all(per_step(heads[0]))) {}

  GRADLANE_INLINE Words code(const Floats& x) const { return nearest_byte(x * per_one); }
  GRADLANE_INLINE Floats value(const Words& code) const { return to_floats((code ^ all(0x80U)) - all(0x80U)) * step; }

  Floats step;
  Floats per_one;
};

}  // namespace
}  // namespace gradlane
