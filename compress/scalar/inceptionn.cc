// inceptionn.cc - codec inceptionn: floats below 1 in 0, 1 or 2 bytes (any thread)
//
// docs/codec-format.md describes this format in prose.
#include "compress/scalar/scalar.h"
#include "compress/scalar/tagged.h"

namespace gradlane::scalar {
namespace {

template <bool kTruncate>
struct Inceptionn {
  // Returns what a float adds to a sum.
  static float contribution(const CodecParams& p, float f) { return kTruncate ? f : on_lattice(p, f); }

  // Rounds to a multiple of 2^-15 first. The class is that of this multiple; 8 bits serve if it rounds to a value with
  // 8 bits.
  static Tagged encode(const CodecParams& p, float f) {
    const uint32_t bits = to_bits(f);
    const float magnitude = to_float(bits & kMagnitude);
    if (!(magnitude < 1.0F)) return {3, bits};
    const float scaled = magnitude * p.steps_per_one;
    const auto q = static_cast<uint32_t>(kTruncate ? std::trunc(scaled) : std::nearbyintf(scaled));
    if (q > 32767) return {3, bits};
    if (q < 1U << (15 - p.bits)) return {0, 0};
    const uint32_t negative = bits >> 31;
    // The byte has 7 bits of magnitude, the lowest one worth 2^-(h+7).
    const uint32_t half = kTruncate ? 0 : 1U << (7 - p.split);
    const uint32_t byte = (q + half) >> (8 - p.split);
    if (byte <= 127) return {1, negative << 7 | byte};
    return {2, negative << 15 | q};
  }

  static float decode(const CodecParams& p, Tagged t) {
    uint32_t q;  // in steps of 2^-15
    bool negative;
    switch (t.tag) {
      case 0:
        return 0.0F;
      case 1:
        q = (t.payload & 0x7f) << (8 - p.split);
        negative = (t.payload & 0x80) != 0;
        break;
      case 2:
        q = t.payload & 0x7fff;
        negative = (t.payload & 0x8000) != 0;
        break;
      default:
        return to_float(t.payload);
    }
    const float value = static_cast<float>(q) * p.step;
    return negative && q != 0 ? -value : value;
  }
};

// The code as the paper has it: the class is that of the float, and payloads have the 7 or 15 bits behind the binary
// point. Below 2^-7 the 7 bits are 0.
struct Literal {
  static float contribution(const CodecParams&, float f) { return f; }

  static Tagged encode(const CodecParams& p, float f) {
    const uint32_t bits = to_bits(f);
    const float magnitude = to_float(bits & kMagnitude);
    if (!(magnitude < 1.0F)) return {3, bits};
    const uint32_t negative = bits >> 31;
    const auto q = static_cast<uint32_t>(magnitude * 0x1p15F);
    if (q >> (15 - p.bits) == 0) return {0, 0};
    if (q >> (15 - p.split) == 0) return {1, negative << 7 | q >> 8};
    return {2, negative << 15 | q};
  }

  static float decode(const CodecParams&, Tagged t) {
    switch (t.tag) {
      case 0:
        return 0.0F;
      case 1:
        return signed_value(t.payload, 7);
      case 2:
        return signed_value(t.payload, 15);
      default:
        return to_float(t.payload);
    }
  }

 private:
  // Returns the value of `width` bits behind the binary point, with the sign in the bit above them. 0 has no sign.
  static float signed_value(uint32_t payload, unsigned width) {
    const uint32_t one = 1U << width;
    const float value = static_cast<float>(payload & (one - 1)) / static_cast<float>(one);
    return payload > one ? -value : value;
  }
};

}  // namespace

constexpr CodecOps kInceptionn = TaggedPasses<Kernels, Inceptionn<false>>::ops();
constexpr CodecOps kInceptionnTruncate = TaggedPasses<Kernels, Inceptionn<true>>::ops();
constexpr CodecOps kInceptionnLiteral = TaggedPasses<Kernels, Literal>::ops();

}  // namespace gradlane::scalar
