// operators.h - the operators that codecs are made of: reduce, filter, select, random, concat, extract
//
// They follow those of CompLL (HiPress, SOSP 2021), and differ in these: there is no sort, because select (select.h)
// finds the k largest values without sorting; there is no map, because codecs call vectors.h for each sixteen floats;
// concat and extract have codes of a byte only, and codecs pack others themselves.
//
// The operators work on sixteen floats at a time (vectors.h). Functions over a run of floats call f(first, count) for
// each sixteen floats, and for the rest: see each().
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/kit/mix.h"
#include "compress/kit/vectors.h"

namespace gradlane {
namespace {

// Calls f(i, count) for floats i to i + count - 1; count is kLanes, or less in the last call.
template <class F>
GRADLANE_INLINE void each(size_t floats, F f) {
  size_t i = 0;
  for (; i + kLanes <= floats; i += kLanes) f(i, kLanes);
  if (i < floats) f(i, floats - i);
}

// ---- reduce
//
// Computes sixteen partial results, lane by lane: acc = f(acc, in[i], ...). A lane for which there is no float left
// keeps its acc. total() and largest_of() make one result of the sixteen, in one fixed order.

template <class T, class F, class... In>
GRADLANE_INLINE Lanes<T> reduce(Lanes<T> acc, size_t floats, F f, const In*... in) {
  each(floats, [&](size_t i, size_t count) GRADLANE_INLINE_LAMBDA {
    const Lanes<T> next = f(acc, load(in + i, count)...);
    acc = count == kLanes ? next : choose(first_lanes(count), next, acc);
  });
  return acc;
}

// Folds lanes i and i + 8, then lanes i and i + 4, and so on.
template <class T, class F>
GRADLANE_INLINE T fold(const Lanes<T>& v, F f) {
  T lane[kLanes];
  store(v, lane);
  for (size_t half = kLanes / 2; half != 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lane[i] = f(lane[i], lane[i + half]);
  }
  return lane[0];
}
GRADLANE_INLINE float total(const Floats& v) {
  return fold(v, [](float a, float b) { return a + b; });
}
GRADLANE_INLINE float largest_of(const Floats& v) {
  return fold(v, [](float a, float b) { return a > b ? a : b; });
}

// Return the least and the greatest lane, faster than a fold. They may return either of 0 and -0, and anything if a
// lane is NaN.
GRADLANE_INLINE float lowest_of(const Floats& v) {
  auto least = v.part[0];
  for_parts([&](size_t k) GRADLANE_INLINE_LAMBDA { least = hn::Min(least, v.part[k]); });
  return hn::GetLane(hn::MinOfLanes(Tag<float>(), least));
}
GRADLANE_INLINE float highest_of(const Floats& v) {
  auto most = v.part[0];
  for_parts([&](size_t k) GRADLANE_INLINE_LAMBDA { most = hn::Max(most, v.part[k]); });
  return hn::GetLane(hn::MaxOfLanes(Tag<float>(), most));
}

// ---- filter
//
// Stores the lanes that a mask selects next to each other, from the beginning of `out`. The rest of out[0] to
// out[kLanes - 1] may be overwritten, too. Returns how many lanes the mask selects.

template <class T>
GRADLANE_INLINE size_t filter(const Mask& mask, const Lanes<T>& v, T* out) {
  if constexpr (kParts == 1) {
    const Tag<T> tag;
    const auto here = hn::RebindMask(tag, mask.part[0]);
    // Compressing into memory is slow on some CPUs.
    hn::StoreU(hn::Compress(v.part[0], here), tag, out);
    return hn::CountTrue(tag, here);
  } else {  // GCC 12 copies Highway's tables to the stack for each call
    T lane[kLanes];
    store(v, lane);
    size_t count = 0;
    for (uint32_t bits = mask_bits(mask); bits != 0; bits &= bits - 1) out[count++] = lane[__builtin_ctz(bits)];
    return count;
  }
}

// ---- random
//
// A random number depends on a seed and a position in the tensor, and on nothing else. Positions with the same lower 32
// bits have the same number. (The mixing steps are those of MurmurHash3's last stage.)

class Random {
 public:
  explicit Random(uint64_t seed)
      : first_(static_cast<uint32_t>(mixed(seed))), second_(static_cast<uint32_t>(mixed(seed) >> 32)) {}

  // Returns 32 random bits for each of sixteen positions.
  [[nodiscard]] GRADLANE_INLINE Words words(uint64_t position) const {
    const Words x = upper(position);
    return x ^ shifted_right<16>(x);
  }
  // Returns words() without the last step of its mixing. The upper bits are as good as those of words(), the lower bits
  // are not.
  [[nodiscard]] GRADLANE_INLINE Words upper(uint64_t position) const {
    Words x = count_from(static_cast<uint32_t>(position) + first_);
    x = (x ^ shifted_right<16>(x)) * all(0x85ebca6bU);
    return ((x ^ shifted_right<13>(x)) + all(second_)) * all(0xc2b2ae35U);
  }

 private:
  uint32_t first_;
  uint32_t second_;
};

// ---- concat and extract
//
// concat() stores sixteen codes, a byte each, side by side. The codes must have no other bits set. extract() loads them
// again.

GRADLANE_INLINE void concat(const Words& codes, uint8_t* out) {
  for_parts([&](size_t k) GRADLANE_INLINE_LAMBDA {
    const hn::Rebind<uint8_t, Tag<uint32_t>> bytes;
    hn::StoreU(hn::DemoteTo(bytes, hn::BitCast(Tag<int32_t>(), codes.part[k])), bytes, out + k * kPart);
  });
}

GRADLANE_INLINE Words extract(const uint8_t* in) {
  Words codes;
  for_parts([&](size_t k) GRADLANE_INLINE_LAMBDA {
    const hn::Rebind<uint8_t, Tag<uint32_t>> bytes;
    codes.part[k] = hn::PromoteTo(Tag<uint32_t>(), hn::LoadU(bytes, in + k * kPart));
  });
  return codes;
}

}  // namespace
}  // namespace gradlane
