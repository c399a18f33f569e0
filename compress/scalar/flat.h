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
