// flat.h - codecs without tags, 16 floats at a time: raw, bf16, fp16 (included by neon.cc only)
#pragma once

#include "compress/neon/vectors.h"

namespace gradlane {
namespace {

// A vector of 16 floats: the `Lanes` of FlatPasses (compress/passes.h). Each codec defines its format in memory.
struct FlatLanes {
  static constexpr size_t kCount = kLanes;

  struct Float {
    static constexpr size_t kWidth = 4;
    static GRADLANE_INLINE Floats load(const uint8_t* p) { return load_lanes<float>(p); }
    static GRADLANE_INLINE void store(uint8_t* p, const Floats& x) { gradlane::store(x, p); }
  };

  template <class Form>
  static GRADLANE_INLINE Floats load(const uint8_t* p, size_t count) {
    if (count == kCount) return Form::load(p);
    uint8_t buffer[kCount * Form::kWidth] = {};
    std::memcpy(buffer, p, count * Form::kWidth);
    return Form::load(buffer);
  }
  template <class Form>
  static GRADLANE_INLINE void store(uint8_t* p, size_t count, const Floats& x) {
    if (count == kCount) return Form::store(p, x);
    uint8_t buffer[kCount * Form::kWidth];
    Form::store(buffer, x);
    std::memcpy(p, buffer, count * Form::kWidth);
  }
  static GRADLANE_INLINE Floats add(const Floats& a, const Floats& b) { return gradlane::add(a, b); }
};

using Raw = FlatLanes::Float;

struct Bf16 {
  static constexpr size_t kWidth = 2;
  static GRADLANE_INLINE Floats load(const uint8_t* p) {
    Floats x;
    for_parts([&](size_t k) GRADLANE_INLINE_LAMBDA {
      const uint16x4_t words = vreinterpret_u16_u8(vld1_u8(p + k * kPart * kWidth));
      x.part[k].raw = vreinterpretq_f32_u32(vshll_n_u16(words, 16));
    });
    return x;
  }
  static GRADLANE_INLINE void store(uint8_t* p, const Floats& x) {
    store_half(p, x.part[0].raw, x.part[1].raw);
    store_half(p + 16, x.part[2].raw, x.part[3].raw);
  }

 private:
  // Rounds the upper half of each float up if the lower half is more than half a unit, or exactly that and the upper
  // half is odd. NaNs stay NaNs.
  static GRADLANE_INLINE void store_half(uint8_t* p, float32x4_t first, float32x4_t second) {
    const uint16x8_t low = vuzp1q_u16(vreinterpretq_u16_f32(first), vreinterpretq_u16_f32(second));
    const uint16x8_t high = vuzp2q_u16(vreinterpretq_u16_f32(first), vreinterpretq_u16_f32(second));
    const uint16x8_t rest = vqaddq_u16(low, vandq_u16(high, vdupq_n_u16(1)));
    const uint16x8_t rounded = vsubq_u16(high, vcgtq_u16(rest, vdupq_n_u16(0x8000)));
    const uint16x8_t is_number =
        vuzp1q_u16(vreinterpretq_u16_u32(vceqq_f32(first, first)), vreinterpretq_u16_u32(vceqq_f32(second, second)));
    const uint16x8_t words = vbslq_u16(is_number, rounded, vorrq_u16(high, vdupq_n_u16(0x40)));
    vst1q_u8(p, vreinterpretq_u8_u16(words));
  }
};

struct Fp16 {
  static constexpr size_t kWidth = 2;
  static GRADLANE_INLINE Floats load(const uint8_t* p) {
    Floats x;
    for_parts([&](size_t k) GRADLANE_INLINE_LAMBDA {
      x.part[k].raw = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + k * kPart * kWidth)));
    });
    return x;
  }
  static GRADLANE_INLINE void store(uint8_t* p, const Floats& x) {
    for_parts([&](size_t k) GRADLANE_INLINE_LAMBDA {
      vst1_u8(p + k * kPart * kWidth, vreinterpret_u8_f16(vcvt_f16_f32(x.part[k].raw)));
    });
  }
};

}  // namespace
}  // namespace gradlane
