// pack.cc - codec pack: exponents relative to the largest of a group, without loss (any thread)
//
// docs/codec-format.md describes this format in prose.
#include "compress/pack_passes.h"
#include "compress/scalar/elements.h"
#include "compress/scalar/scalar.h"

namespace gradlane::scalar {
namespace {

constexpr uint32_t kMantissa = 0x7fffff;

uint32_t exponent(uint32_t bits) { return bits >> 23 & 0xff; }

struct PackKernels {
  struct Floats {
    uint32_t bits[kGroupFloats];
  };

  static Floats load(const float* p, size_t m) {
    Floats x{};
    std::memcpy(x.bits, reinterpret_cast<const uint8_t*>(p), m * sizeof(float));
    return x;
  }
  static void store(float* p, size_t m, const Floats& x) {
    std::memcpy(reinterpret_cast<uint8_t*>(p), x.bits, m * sizeof(float));
  }
  static Floats add(const Floats& a, const Floats& b) {
    Floats sum;
    for (size_t i = 0; i < kGroupFloats; ++i) {
      sum.bits[i] = to_bits(gradlane::add(to_float(a.bits[i]), to_float(b.bits[i])));
    }
    return sum;
  }

  static size_t pack(const Floats& x, size_t m, uint8_t* out) {
    size_t zeros = 0;
    for (size_t i = 0; i < m; ++i) zeros += x.bits[i] == 0 ? 1 : 0;
    if (zeros == m) {
      out[0] = kPackZeros;
      return 1;
    }
    const bool masked = zeros >= 2;
    Floats sent{};
    size_t count = 0;
    uint32_t mask = 0;
    unsigned base = 0;
    unsigned least = 0xff;
    bool any_zero = false;
    for (size_t i = 0; i < m; ++i) {
      if (masked && x.bits[i] == 0) continue;
      mask |= uint32_t{1} << i;
      sent.bits[count++] = x.bits[i];
      const uint32_t e = exponent(x.bits[i]);
      base = base > e ? base : e;
      if (e == 0) any_zero = true;
      if (e != 0 && e < least) least = e;
    }
    const unsigned head = pack_head(m, count, base, least, any_zero);
    out[0] = static_cast<uint8_t>(head);
    if (head == kPackPlain) {
      std::memcpy(out + 1, x.bits, m * sizeof(float));
      return 1 + m * sizeof(float);
    }
    out[1] = static_cast<uint8_t>(base);
    uint8_t* to = out + 2;
    if (masked) {
      std::memcpy(to, &mask, sizeof mask);
      to += sizeof mask;
    }
    const unsigned k = head & kPackBits;
    for (unsigned j = 0; j < k; ++j) {
      uint32_t plane = 0;
      for (size_t i = 0; i < count; ++i) {
        const uint32_t e = exponent(sent.bits[i]);
        const uint32_t code = (head & kPackEscape) != 0 && e == 0 ? (1U << k) - 1 : base - e;
        plane |= (code >> j & 1) << i;
      }
      std::memcpy(to, &plane, (count + 7) / 8);
      to += (count + 7) / 8;
    }
    for (size_t i = 0; i < count; ++i, to += 3) {
      const uint32_t rest = (sent.bits[i] & kMantissa) | sent.bits[i] >> 31 << 23;
      std::memcpy(to, &rest, 3);
    }
    return static_cast<size_t>(to - out);
  }

  static Floats unpack(const PackedGroup& group, size_t m, const uint8_t*) {
    Floats x{};
    if (group.head == kPackZeros) return x;
    if (group.head == kPackPlain) {
      std::memcpy(x.bits, group.planes, m * sizeof(float));
      return x;
    }
    size_t place = 0;
    for (size_t i = 0; i < m; ++i) {
      if ((group.mask >> i & 1) == 0) continue;
      uint32_t code = 0;
      for (unsigned j = 0; j < group.bits(); ++j) {
        code |= (group.planes[j * group.plane_bytes + place / 8] >> place % 8 & 1U) << j;
      }
      const bool escaped = (group.head & kPackEscape) != 0 && code == (1U << group.bits()) - 1;
      const uint32_t e = escaped ? 0 : (group.base - code) & 0xff;
      uint32_t rest = 0;
      std::memcpy(&rest, group.rest() + 3 * place, 3);
      x.bits[i] = rest >> 23 << 31 | e << 23 | (rest & kMantissa);
      ++place;
    }
    return x;
  }
};

}  // namespace

constexpr CodecOps kPack = PackPasses<PackKernels>::ops();

}  // namespace gradlane::scalar
