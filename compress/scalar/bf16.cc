// bf16.cc - codec bf16: the upper half of each float (any thread)
//
// docs/codec-format.md describes this format in prose.
#include "compress/scalar/flat.h"
#include "compress/scalar/scalar.h"

namespace gradlane::scalar {
namespace {

// Upper half of the float, rounded to nearest even.
struct Bf16 {
  using Word = uint16_t;
  static Word encode(float f) {
    const uint32_t bits = to_bits(f);
    if (std::isnan(f)) return static_cast<Word>(bits >> 16 | 0x40);
    return static_cast<Word>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
  static float decode(Word w) { return to_float(static_cast<uint32_t>(w) << 16); }
};

}  // namespace

constexpr CodecOps kBf16 = FlatPasses<FlatLanes, Form<Bf16>>::ops();

}  // namespace gradlane::scalar
