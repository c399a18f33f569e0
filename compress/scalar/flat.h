// flat.h - codecs without tags, one float at a time: see FlatPasses; included by the scalar kernels of each of them
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/passes.h"
#include "compress/scalar/elements.h"

namespace gradlane {
namespace {

// Unchanged fp32: the format of codec raw, and of floats in memory.
struct Raw {
  using Word = uint32_t;
  static Word encode(float f) { return to_bits(f); }
  static float decode(Word w) { return to_float(w); }
};

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

// The format of a codec, as a vector of one float.
template <class C>
struct Form {
  static constexpr size_t kWidth = sizeof(typename C::Word);
  static float load(const uint8_t* p) {
    typename C::Word word;  // words and floats may lie at odd addresses
    std::memcpy(&word, p, sizeof word);
    return C::decode(word);
  }
  static void store(uint8_t* p, float f) {
    const typename C::Word word = C::encode(f);
    std::memcpy(p, &word, sizeof word);
  }
};

struct FlatLanes {
  static constexpr size_t kCount = 1;
  using Float = Form<Raw>;

  template <class F>
  static float load(const uint8_t* p, size_t) {
    return F::load(p);
  }
  template <class F>
  static void store(uint8_t* p, size_t, float f) {
    F::store(p, f);
  }
  static float add(float a, float b) { return gradlane::add(a, b); }
};

}  // namespace
}  // namespace gradlane
