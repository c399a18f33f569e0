// fixed.cc - codec fixed: multiples of 2^(1-b), in 0, 1, 2 or 4 bytes (any thread)
//
// docs/codec-format.md says the same in prose.
#include "compress/scalar/scalar.h"
#include "compress/scalar/tagged.h"

namespace gradlane::scalar {
namespace {

struct Fixed {
  static constexpr bool kFeedback = true;

  // What f adds to a sum.
  static float contribution(const CodecParams& p, float f) { return on_lattice(p, f); }

  static Tagged encode(const CodecParams& p, float f) {
    if (!(std::fabs(f) < p.exact)) return {3, to_bits(f)};
    const float steps = std::nearbyintf(f * p.steps_per_one);
    const auto q = static_cast<int32_t>(steps);
    if (q == 0) return {0, 0};
    if (-127 <= q && q <= 127) return {1, static_cast<uint8_t>(q)};
    if (-32767 <= q && q <= 32767) return {2, static_cast<uint16_t>(q)};
    return {3, to_bits(steps * p.step)};
  }

  static float decode(const CodecParams& p, Tagged t) {
    switch (t.tag) {
      case 0:
        return 0.0F;
      case 1:
        return static_cast<float>(static_cast<int8_t>(t.payload)) * p.step;
      case 2:
        return static_cast<float>(static_cast<int16_t>(t.payload)) * p.step;
      default:
        return to_float(t.payload);
    }
  }
};

}  // namespace

constexpr CodecOps kFixed = TaggedPasses<Kernels, Fixed>::ops();

}  // namespace gradlane::scalar
