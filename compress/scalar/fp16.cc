// fp16.cc - codec fp16: each float as IEEE half (any thread)
//
// docs/codec-format.md describes this format in prose.
#include "compress/scalar/flat.h"
#include "compress/scalar/scalar.h"

namespace gradlane::scalar {
namespace {

// IEEE 754 binary16, rounded to nearest even, as VCVTPS2PH and VCVTPH2PS do it.
struct Fp16 {
  using Word = uint16_t;
  static Word encode(float f) {
    const uint32_t bits = to_bits(f);
    const uint32_t sign = bits >> 16 & 0x8000;
    const uint32_t magnitude = bits & kMagnitude;
    if (magnitude > kInf) return static_cast<Word>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) return static_cast<Word>(sign | 0x7c00);  // rounds to 2^16 or more
    if (magnitude < 0x38800000) {  // below 2^-14: a multiple of 2^-24, rounded by the addition
      return static_cast<Word>(sign | (to_bits(to_float(magnitude) + 0.5F) - to_bits(0.5F)));
    }
    const uint32_t odd = magnitude >> 13 & 1;
    return static_cast<Word>(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
  }
  static float decode(Word w) {
    const uint32_t sign = static_cast<uint32_t>(w & 0x8000) << 16;
    const uint32_t magnitude = w & 0x7fff;
    if (magnitude > 0x7c00) return to_float(sign | kInf | 0x400000 | magnitude << 13);
    if (magnitude == 0x7c00) return to_float(sign | kInf);
    if (magnitude >= 0x400) return to_float(sign | ((magnitude << 13) + 0x38000000));
    return to_float(sign | to_bits(static_cast<float>(magnitude) * 0x1p-24F));
  }
};

}  // namespace

constexpr CodecOps kFp16 = FlatPasses<FlatLanes, Form<Fp16>>::ops();

}  // namespace gradlane::scalar
