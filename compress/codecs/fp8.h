// fp8.h - codec fp8: e4m3 numbers (-448 to 448) times a unit, which is a 448th of a chunk's largest magnitude
//
// (Micikevicius et al., FP8 Formats for Deep Learning, 2022.)
#pragma once

#include "compress/codecs/chunks.h"

namespace gradlane {
namespace {

struct Fp8 {
  static constexpr size_t kHeads = 1;  // the unit
  static unsigned bits(const CodecParams&) { return 8; }

  struct Measure : Largest {
    void heads(const CodecParams&, size_t, float* heads) const { heads[0] = step_of(highest_of(largest), 448); }
  };

  Fp8(const CodecParams&, const float* heads) : unit(all(heads[0])), per_one(all(per_step(heads[0]))) {}

  GRADLANE_INLINE Words code(const Floats& x) const {
    const Floats y = x * per_one;
    const Words size = bits_of(abs(y));
    const Words even = shifted_right<20>(size) & all(1U);
    const Words normal = shifted_right<20>(size + all(0x7ffffU) + even) - all(120U << 3);
    const Words denormal = nearest_byte(abs(y) * all(0x1p9F));
    const Words sign = shifted_right<24>(bits_of(y)) & all(0x80U);
    return choose(abs(y) < all(0x1p-6F), denormal, normal) | sign;
  }
  // The code of e4m3's NaN is never sent. It decodes to 480 units.
  GRADLANE_INLINE Floats value(const Words& code) const {
    const Words size = shifted_left<20>(code & all(0x7fU));
    const Floats normal = floats_of(size + all(120U << 23));
    const Floats denormal = floats_of(size + all(121U << 23)) - all(0x1p-6F);
    const Floats y = choose(size < all(8U << 20), denormal, normal) * unit;
    return floats_of(bits_of(y) | shifted_left<24>(code & all(0x80U)));
  }

  Floats unit;
  Floats per_one;
};

}  // namespace
}  // namespace gradlane
