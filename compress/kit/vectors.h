// vectors.h - vectors of sixteen floats or words, in the registers of the instruction set; included by the kernels of
// every instruction set that are made with the kit
//
// A vector always has sixteen lanes. So results that are computed lane by lane, and then from sixteen partial sums,
// have the same bits everywhere. A vector is one register of AVX-512, two of AVX2, or four of SSE4.2 or NEON. It is
// sixteen plain variables if Highway is told to be scalar. compress/meson.build tells Highway the instruction set of
// each translation unit; nothing is dispatched at run time.
//
// Spans may lie at odd addresses. The code is in an unnamed namespace; layout.h says why.
#pragma once

#include <hwy/highway.h>

#include <utility>

#include "compress/layout.h"

namespace gradlane {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLanes = 16;

template <class T>
using Tag = hn::CappedTag<T, kLanes>;
constexpr size_t kPart = hn::MaxLanes(Tag<float>());
constexpr size_t kParts = kLanes / kPart;

// Calls f(0), ..., f(kParts - 1), without a loop.
template <class F>
GRADLANE_INLINE void for_parts(F f) {
  [&]<size_t... k>(std::index_sequence<k...>) GRADLANE_INLINE_LAMBDA { (f(k), ...); }
  (std::make_index_sequence<kParts>());
}

template <class T>
struct Lanes {
  hn::Vec<Tag<T>> part[kParts];
};
using Floats = Lanes<float>;
using Words = Lanes<uint32_t>;

// A truth value for each lane.
struct Mask {
  hn::Mask<Tag<float>> part[kParts];
};

// Applies f to each part of a, b, ..., and returns the results as lanes.
template <class T, class F, class... In>
GRADLANE_INLINE Lanes<T> lanes_of(F f, const In&... in) {
  Lanes<T> out;
  for_parts([&](size_t k) GRADLANE_INLINE_LAMBDA { out.part[k] = f(in.part[k]...); });
  return out;
}
template <class F, class... In>
GRADLANE_INLINE Mask mask_of(F f, const In&... in) {
  Mask out;
  for_parts([&](size_t k) GRADLANE_INLINE_LAMBDA { out.part[k] = hn::RebindMask(Tag<float>(), f(in.part[k]...)); });
  return out;
}

// ---- Constants

GRADLANE_INLINE Floats all(float f) {
  return lanes_of<float>([f]() GRADLANE_INLINE_LAMBDA { return hn::Set(Tag<float>(), f); });
}
GRADLANE_INLINE Words all(uint32_t w) {
  return lanes_of<uint32_t>([w]() GRADLANE_INLINE_LAMBDA { return hn::Set(Tag<uint32_t>(), w); });
}
// ---- Memory

template <class T>
GRADLANE_INLINE Lanes<T> load_lanes(const void* from) {
  Lanes<T> out;
  for_parts([&](size_t k) GRADLANE_INLINE_LAMBDA {
    const auto* const at = static_cast<const uint8_t*>(from) + k * kPart * sizeof(T);
    if constexpr (kPart == 1) {
      T one;
      std::memcpy(&one, at, sizeof one);
      out.part[k] = hn::Set(Tag<T>(), one);
    } else {
      out.part[k] = hn::LoadU(Tag<T>(), reinterpret_cast<const T*>(at));
    }
  });
  return out;
}

template <class T>
GRADLANE_INLINE void store(const Lanes<T>& v, void* to) {
  for_parts([&](size_t k) GRADLANE_INLINE_LAMBDA {
    auto* const at = static_cast<uint8_t*>(to) + k * kPart * sizeof(T);
    if constexpr (kPart == 1) {
      const T one = hn::GetLane(v.part[k]);
      std::memcpy(at, &one, sizeof one);
    } else {
      hn::StoreU(v.part[k], Tag<T>(), reinterpret_cast<T*>(at));
    }
  });
}

// Lane numbers, to compute first, first + 1, ... (Highway's Iota goes through memory.)
alignas(64) constexpr uint32_t kCount[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
GRADLANE_INLINE Words count_from(uint32_t first) {
  return lanes_of<uint32_t>([](auto a, auto b) GRADLANE_INLINE_LAMBDA { return hn::Add(a, b); },
                            load_lanes<uint32_t>(kCount), all(first));
}

GRADLANE_INLINE Floats load(const float* from) { return load_lanes<float>(from); }

// Loads the first `count` lanes. The others are 0.
template <class T>
GRADLANE_INLINE Lanes<T> load_lanes(const void* from, size_t count) {
  if constexpr (kParts == 1) {
    const Tag<T> tag;
    return {{hn::MaskedLoad(hn::FirstN(tag, count), tag, static_cast<const T*>(from))}};
  } else {
    T some[kLanes] = {};
    std::memcpy(some, from, smaller(count, kLanes) * sizeof(T));
    return load_lanes<T>(some);
  }
}
GRADLANE_INLINE Floats load(const float* from, size_t count) {
  if (count >= kLanes) [[likely]]
    return load(from);
  return load_lanes<float>(from, count);
}

// Loads `count` bytes, at most sixteen, one per lane. The other lanes are 0.
GRADLANE_INLINE Words load_bytes(const uint8_t* from, size_t count) {
  if constexpr (kParts == 1) {
    const hn::Rebind<uint8_t, Tag<uint32_t>> tag;
    return {{hn::PromoteTo(Tag<uint32_t>(), hn::MaskedLoad(hn::FirstN(tag, count), tag, from))}};
  } else {
    uint32_t some[kLanes] = {};
    for (size_t i = 0; i < count; ++i) some[i] = from[i];
    return load_lanes<uint32_t>(some);
  }
}

// Stores the first `count` lanes.
template <class T>
GRADLANE_INLINE void store(const Lanes<T>& v, T* to, size_t count) {
  if (count >= kLanes) [[likely]]
    return store(v, to);
  T some[kLanes];
  store(v, some);
  std::memcpy(to, some, count * sizeof(T));
}

// Stores the low byte of each lane: 16 bytes.
GRADLANE_INLINE void store_bytes(const Words& v, uint8_t* to) {
  for_parts([&](size_t k) GRADLANE_INLINE_LAMBDA {
    const hn::Rebind<uint8_t, Tag<uint32_t>> tag;
    hn::StoreU(hn::TruncateTo(tag, v.part[k]), tag, to + k * kPart);
  });
}

// ---- Bits and conversions

GRADLANE_INLINE Words bits_of(const Floats& v) {
  return lanes_of<uint32_t>([](auto a) GRADLANE_INLINE_LAMBDA { return hn::BitCast(Tag<uint32_t>(), a); }, v);
}
GRADLANE_INLINE Floats floats_of(const Words& v) {
  return lanes_of<float>([](auto a) GRADLANE_INLINE_LAMBDA { return hn::BitCast(Tag<float>(), a); }, v);
}
// Returns the nearest integers, ties to even, in two's complement. v must be within +-2^31.
GRADLANE_INLINE Words nearest(const Floats& v) {
  return lanes_of<uint32_t>(
      [](auto a) GRADLANE_INLINE_LAMBDA { return hn::BitCast(Tag<uint32_t>(), hn::NearestInt(a)); }, v);
}
// Converts integers in two's complement to floats.
GRADLANE_INLINE Floats to_floats(const Words& v) {
  return lanes_of<float>(
      [](auto a) GRADLANE_INLINE_LAMBDA { return hn::ConvertTo(Tag<float>(), hn::BitCast(Tag<int32_t>(), a)); }, v);
}

// ---- Arithmetic

template <class T>
GRADLANE_INLINE Lanes<T> operator+(const Lanes<T>& a, const Lanes<T>& b) {
  return lanes_of<T>([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::Add(x, y); }, a, b);
}
template <class T>
GRADLANE_INLINE Lanes<T> operator-(const Lanes<T>& a, const Lanes<T>& b) {
  return lanes_of<T>([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::Sub(x, y); }, a, b);
}
template <class T>
GRADLANE_INLINE Lanes<T> operator*(const Lanes<T>& a, const Lanes<T>& b) {
  return lanes_of<T>([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::Mul(x, y); }, a, b);
}
GRADLANE_INLINE Floats operator/(const Floats& a, const Floats& b) {
  return lanes_of<float>([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::Div(x, y); }, a, b);
}
template <class T>
GRADLANE_INLINE Lanes<T> operator&(const Lanes<T>& a, const Lanes<T>& b) {
  return lanes_of<T>([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::And(x, y); }, a, b);
}
template <class T>
GRADLANE_INLINE Lanes<T> operator|(const Lanes<T>& a, const Lanes<T>& b) {
  return lanes_of<T>([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::Or(x, y); }, a, b);
}
template <class T>
GRADLANE_INLINE Lanes<T> operator^(const Lanes<T>& a, const Lanes<T>& b) {
  return lanes_of<T>([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::Xor(x, y); }, a, b);
}
template <int kBits>
GRADLANE_INLINE Words shifted_left(const Words& v) {
  return lanes_of<uint32_t>([](auto a) GRADLANE_INLINE_LAMBDA { return hn::ShiftLeft<kBits>(a); }, v);
}
template <int kBits>
GRADLANE_INLINE Words shifted_right(const Words& v) {
  return lanes_of<uint32_t>([](auto a) GRADLANE_INLINE_LAMBDA { return hn::ShiftRight<kBits>(a); }, v);
}
GRADLANE_INLINE Floats abs(const Floats& v) {
  return lanes_of<float>([](auto a) GRADLANE_INLINE_LAMBDA { return hn::Abs(a); }, v);
}
// Return the smaller and the larger value of each lane. If one of the two is NaN, they may return either.
GRADLANE_INLINE Floats smaller(const Floats& a, const Floats& b) {
  return lanes_of<float>([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::IfThenElse(hn::Lt(x, y), x, y); }, a,
                         b);
}
GRADLANE_INLINE Floats larger(const Floats& a, const Floats& b) {
  return lanes_of<float>([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::IfThenElse(hn::Gt(x, y), x, y); }, a,
                         b);
}

// Return the smaller and the larger value of each lane, faster. If the values are 0 and -0, or one is NaN, they may
// return either.
GRADLANE_INLINE Floats lower(const Floats& a, const Floats& b) {
  return lanes_of<float>([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::Min(x, y); }, a, b);
}
GRADLANE_INLINE Floats upper(const Floats& a, const Floats& b) {
  return lanes_of<float>([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::Max(x, y); }, a, b);
}

// ---- Comparisons and masks

template <class T>
GRADLANE_INLINE Mask operator<(const Lanes<T>& a, const Lanes<T>& b) {
  return mask_of([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::Lt(x, y); }, a, b);
}
template <class T>
GRADLANE_INLINE Mask operator>(const Lanes<T>& a, const Lanes<T>& b) {
  return b < a;
}
GRADLANE_INLINE Mask operator<=(const Floats& a, const Floats& b) {
  return mask_of([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::Le(x, y); }, a, b);
}
GRADLANE_INLINE Mask operator>=(const Floats& a, const Floats& b) { return b <= a; }
template <class T>
GRADLANE_INLINE Mask operator==(const Lanes<T>& a, const Lanes<T>& b) {
  return mask_of([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::Eq(x, y); }, a, b);
}
GRADLANE_INLINE Mask operator!(const Mask& a) {
  return mask_of([](auto x) GRADLANE_INLINE_LAMBDA { return hn::Not(x); }, a);
}
GRADLANE_INLINE Mask operator&(const Mask& a, const Mask& b) {
  return mask_of([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::And(x, y); }, a, b);
}
GRADLANE_INLINE Mask operator|(const Mask& a, const Mask& b) {
  return mask_of([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::Or(x, y); }, a, b);
}

// Returns which lanes are finite. Inf and NaN are not.
GRADLANE_INLINE Mask is_finite(const Floats& v) { return abs(v) < all(__builtin_inff()); }
// Returns which lanes are neither 0 nor -0.
GRADLANE_INLINE Mask has_value(const Floats& v) { return !(v == all(0.0F)); }
// Returns a mask of the first `count` lanes.
GRADLANE_INLINE Mask first_lanes(size_t count) { return count_from(0) < all(static_cast<uint32_t>(count)); }

template <class T>
GRADLANE_INLINE Lanes<T> choose(const Mask& mask, const Lanes<T>& yes, const Lanes<T>& no) {
  return lanes_of<T>([](auto m, auto a, auto b)
                         GRADLANE_INLINE_LAMBDA { return hn::IfThenElse(hn::RebindMask(Tag<T>(), m), a, b); },
                     mask, yes, no);
}
// Returns v where the mask is true, else 0.
template <class T>
GRADLANE_INLINE Lanes<T> only(const Mask& mask, const Lanes<T>& v) {
  return lanes_of<T>([](auto m, auto a)
                         GRADLANE_INLINE_LAMBDA { return hn::IfThenElseZero(hn::RebindMask(Tag<T>(), m), a); },
                     mask, v);
}

GRADLANE_INLINE bool any(const Mask& mask) {
  bool found = false;
  for_parts([&](size_t k) GRADLANE_INLINE_LAMBDA { found |= !hn::AllFalse(Tag<float>(), mask.part[k]); });
  return found;
}

// Returns a word whose bit i is lane i.
GRADLANE_INLINE uint32_t mask_bits(const Mask& mask) {
  uint32_t bits = 0;
  for_parts([&](size_t k) GRADLANE_INLINE_LAMBDA {
    uint8_t bytes[8] = {};  // Highway writes eight bytes
    hn::StoreMaskBits(Tag<float>(), mask.part[k], bytes);
    uint16_t word;
    std::memcpy(&word, bytes, sizeof word);
    bits |= static_cast<uint32_t>(word) << k * kPart;
  });
  return bits;
}
GRADLANE_INLINE Mask mask_of_bits(uint32_t bits) {
  Mask out;
  for_parts([&](size_t k) GRADLANE_INLINE_LAMBDA {
    const uint32_t here = bits >> k * kPart;
    uint8_t bytes[8];
    std::memcpy(bytes, &here, sizeof here);
    std::memset(bytes + sizeof here, 0, sizeof here);
    out.part[k] = hn::LoadMaskBits(Tag<float>(), bytes);
  });
  return out;
}

// ---- Addition and rounding

// one_nan() makes every NaN 0x7fc00000. add() is IEEE addition whose NaN does not depend on the operands.
GRADLANE_INLINE Floats one_nan(const Floats& v) { return choose(v == v, v, floats_of(all(0x7fc00000U))); }
GRADLANE_INLINE Floats add(const Floats& a, const Floats& b) { return one_nan(a + b); }

// Returns the nearest multiples of a power of two, ties to even. `exact` is 2^23 times that power (CodecParams): from
// this magnitude on, all floats are multiples. NaN and Inf do not change.
GRADLANE_INLINE Floats to_multiples(const Floats& v, float exact) {
  const Floats size = abs(v), limit = all(exact);
  const Words sign = bits_of(v) & all(0x80000000U);
  const Floats rounded = floats_of(bits_of((size + limit) - limit) | sign);
  return choose(size < limit, rounded, v);
}

}  // namespace
}  // namespace gradlane
