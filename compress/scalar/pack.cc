// pack.cc - codec pack: exponents relative to the largest of a group, without loss (any thread)
//
// docs/codec-format.md describes this format in prose.
#include "compress/pack_passes.h"
#include "compress/scalar/flat.h"
#include "compress/scalar/scalar.h"

namespace gradlane::scalar {
namespace {

constexpr uint32_t kMantissa = 0x7fffff;

uint32_t exponent(uint32_t bits) { return bits >> 23 & 0xff; }

// ---- An element of each type as a word, and sums of words, rounded to the type

struct OfFp32 : PackFp32 {
  using Element = uint32_t;
  static uint32_t widen(Element element) { return element; }
  static Element narrow(uint32_t word) { return word; }
  static uint32_t add(uint32_t a, uint32_t b) { return to_bits(gradlane::add(to_float(a), to_float(b))); }
};

template <class Type, class Format>
struct OfHalves : Type {
  using Element = uint16_t;
  static uint32_t add(uint32_t a, uint32_t b) {
    const auto value = [](uint32_t word) { return Format::decode(Type::narrow(word)); };
    return Type::widen(Format::encode(gradlane::add(value(a), value(b))));
  }
};

struct Bf16Words : PackBf16 {
  static uint32_t widen(uint16_t element) { return uint32_t{element} << 16; }
  static uint16_t narrow(uint32_t word) { return static_cast<uint16_t>(word >> 16); }
};

struct Fp16Words : PackFp16 {
  static uint32_t widen(uint16_t element) { return (element & 0x8000U) << 16 | (element & 0x7fffU) << 13; }
  static uint16_t narrow(uint32_t word) { return static_cast<uint16_t>((word >> 16 & 0x8000) | (word >> 13 & 0x7fff)); }
};

template <class Of>
struct PackKernels {
  using Type = Of;
  using Element = typename Of::Element;
  struct Floats {
    uint32_t bits[kGroupFloats];
  };

  static Floats load(const uint8_t* p, size_t m) {
    Floats x{};
    for (size_t i = 0; i < m; ++i) {
      Element element;
      std::memcpy(&element, p + i * sizeof element, sizeof element);
      x.bits[i] = Of::widen(element);
    }
    return x;
  }
  static void store(uint8_t* p, size_t m, const Floats& x) {
    for (size_t i = 0; i < m; ++i) {
      const Element element = Of::narrow(x.bits[i]);
      std::memcpy(p + i * sizeof element, &element, sizeof element);
    }
  }
  static Floats add(const Floats& a, const Floats& b) {
    Floats sum;
    for (size_t i = 0; i < kGroupFloats; ++i) sum.bits[i] = Of::add(a.bits[i], b.bits[i]);
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
    const unsigned head = pack_head<Type>(m, count, base, least, any_zero);
    out[0] = static_cast<uint8_t>(head);
    if (head == kPackPlain) {
      store(out + 1, m, x);
      return 1 + m * Type::kBytes;
    }
    out[1] = static_cast<uint8_t>(base);
    uint8_t* to = out + 2;
    if (masked) {
      std::memcpy(to, &mask, sizeof mask);
      to += sizeof mask;
    }
    const unsigned k = head & kPackBits;
    for (unsigned j = 0; j < k + Type::kLowPlanes; ++j) {
      uint32_t plane = 0;
      for (size_t i = 0; i < count; ++i) {
        const uint32_t e = exponent(sent.bits[i]);
        const uint32_t code = (head & kPackEscape) != 0 && e == 0 ? (1U << k) - 1 : base - e;
        plane |= (j < k ? code >> j & 1 : rest_of(sent.bits[i]) >> (j - k) & 1) << i;
      }
      std::memcpy(to, &plane, (count + 7) / 8);
      to += (count + 7) / 8;
    }
    for (size_t i = 0; i < count; ++i, to += Type::kRest) {
      const uint32_t rest = rest_of(sent.bits[i]) >> Type::kLowPlanes;
      std::memcpy(to, &rest, Type::kRest);
    }
    return static_cast<size_t>(to - out);
  }

  static Floats unpack(const PackedGroup& group, size_t m, const uint8_t*) {
    Floats x{};
    if (group.head == kPackZeros) return x;
    if (group.head == kPackPlain) return load(group.planes, m);
    const uint8_t* const low = group.planes + group.bits() * group.plane_bytes;
    const uint8_t* const rests = low + Type::kLowPlanes * group.plane_bytes;
    size_t place = 0;
    for (size_t i = 0; i < m; ++i) {
      if ((group.mask >> i & 1) == 0) continue;
      const uint32_t code = number(group.planes, group.bits(), group.plane_bytes, place);
      const bool escaped = (group.head & kPackEscape) != 0 && code == (1U << group.bits()) - 1;
      const uint32_t e = escaped ? 0 : (group.base - code) & 0xff;
      uint32_t rest = 0;
      std::memcpy(&rest, rests + Type::kRest * place, Type::kRest);
      rest = rest << Type::kLowPlanes | number(low, Type::kLowPlanes, group.plane_bytes, place);
      rest <<= kUnused;
      x.bits[i] = rest >> 23 << 31 | e << 23 | (rest & kMantissa);
      ++place;
    }
    return x;
  }

 private:
  // Bits below the mantissa of the type.
  static constexpr unsigned kUnused = 24 - 8 * Type::kRest - Type::kLowPlanes;

  // Returns mantissa and sign.
  static uint32_t rest_of(uint32_t word) { return ((word & kMantissa) | word >> 31 << 23) >> kUnused; }

  // Returns the number of which `planes` have the bits.
  static uint32_t number(const uint8_t* planes, unsigned count, size_t plane_bytes, size_t place) {
    uint32_t value = 0;
    for (unsigned j = 0; j < count; ++j) {
      value |= (planes[j * plane_bytes + place / 8] >> place % 8 & 1U) << j;
    }
    return value;
  }
};

}  // namespace

constexpr CodecOps kPack = PackPasses<PackKernels<OfFp32>>::ops();
constexpr CodecOps kPackBf16 = PackPasses<PackKernels<OfHalves<Bf16Words, Bf16>>>::ops();
constexpr CodecOps kPackFp16 = PackPasses<PackKernels<OfHalves<Fp16Words, Fp16>>>::ops();

}  // namespace gradlane::scalar
