// elements.h - arithmetic of the element types: sums, averages, minima and maxima (coder.cc only)
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "collectives/exchange/coder.h"
#include "collectives/operation.h"
#include "collectives/wire.h"
#include "compress/codec.h"
#include "compress/exact_sum.h"

namespace gradlane {

// The arithmetic of one type on elements at any address. `codec`: the codec of the Coder that calls.
struct ElementOps {
  ElementCombine add;  // null for fp32, which the codec adds
  ElementCombine min;
  ElementCombine max;
  // Null for integers and bytes.
  void (*divide)(const Codec& codec, uint8_t* elements, size_t count, unsigned divisor) noexcept;
  void (*sum_exactly)(const Codec& codec, const void* const* in, unsigned arrays, unsigned divisor, uint8_t* out,
                      size_t count) noexcept;
};

namespace {

// Replaces any NaN by the NaN of all sums: positive and quiet, no other bit set.
template <class T>
T one_nan(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

// An element type that CPUs calculate with. T is unsigned for integers, so that they wrap.
template <class T>
struct Plain {
  using Word = T;
  static T add(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return one_nan(a + b);
    } else {
      return static_cast<T>(a + b);
    }
  }
  static T divide(T value, T divisor) { return one_nan(value / divisor); }
};

// Runs `pass(index, count)` over chunks of kChunk elements, and then over the rest. The trip count of a chunk is
// constant, so that GCC makes vector code of the loop at -O2.
template <size_t kChunk, class Pass>
void for_chunks(size_t count, Pass pass) {
  size_t i = 0;
  for (; i + kChunk <= count; i += kChunk) pass(i, std::integral_constant<size_t, kChunk>());
  if (i < count) pass(i, count - i);
}

// Calls `of(a, b)`, which may be vector code, for each pair of words.
template <class Word, Word (*of)(Word, Word)>
void for_pairs(const Codec&, const uint8_t* __restrict a, const uint8_t* __restrict b, uint8_t* __restrict out,
               size_t count) noexcept {
  for_chunks<kGranuleBytes / sizeof(Word)>(count, [=](size_t first, auto chunk) {
    const size_t start = first * sizeof(Word);
    for (size_t i = 0; i < chunk; ++i) {
      const size_t at = start + i * sizeof(Word);
      store(out + at, of(load<Word>(a + at), load<Word>(b + at)));
    }
  });
}

// Rounds sums of fp32 and fp64 once.
template <class T>
void sum_exactly(const Codec& codec, const void* const* in, unsigned arrays, unsigned divisor, uint8_t* out,
                 size_t count) noexcept {
  exact_sum(codec.isa(), ExactSumJob<T>{in, arrays, divisor, out, count});
}

template <class Element>
struct PlainOps {
  using Word = typename Element::Word;
  static constexpr size_t kChunk = kGranuleBytes / sizeof(Word);
  static constexpr ElementCombine kAdd = for_pairs<Word, Element::add>;

  static void divide(const Codec&, uint8_t* elements, size_t count, unsigned divisor) noexcept {
    const auto by = static_cast<Word>(divisor);
    for_chunks<kChunk>(count, [=](size_t first, auto chunk) {
      uint8_t* const start = elements + first * sizeof(Word);
      for (size_t i = 0; i < chunk; ++i) {
        uint8_t* const at = start + i * sizeof(Word);
        store(at, Element::divide(load<Word>(at), by));
      }
    });
  }
};

// Picks the smaller or larger of two words. Words are compared as the integer type Whole, with its sign. Floats have
// kFraction bits after the exponent; rank() inverts the magnitude bits of negative ones. So -0 is less than +0, and all
// NaNs lie beyond the infinities.
template <class Whole, int kFraction = 0>
struct Pick {
  static constexpr Whole kMagnitude = std::numeric_limits<Whole>::max();
  static constexpr Whole kInfinity = static_cast<Whole>(kMagnitude >> kFraction << kFraction);
  static constexpr Whole kNan = static_cast<Whole>(kInfinity | kInfinity >> 1);

  static Whole rank(Whole word) {
    if constexpr (kFraction == 0) return word;
    return static_cast<Whole>(word ^ ((word >> (8 * sizeof(Whole) - 1)) & kMagnitude));
  }
  static Whole whole(Whole a, Whole b, bool a_wins) {
    const Whole winner = a_wins ? a : b;
    if constexpr (kFraction == 0) return winner;
    const bool nan = ((a & kMagnitude) > kInfinity) | ((b & kMagnitude) > kInfinity);
    return nan ? kNan : winner;
  }
  static Whole min(Whole a, Whole b) { return whole(a, b, rank(a) < rank(b)); }
  static Whole max(Whole a, Whole b) { return whole(a, b, rank(a) > rank(b)); }

  static constexpr ElementCombine kMin = for_pairs<Whole, min>;
  static constexpr ElementCombine kMax = for_pairs<Whole, max>;
};

// The arithmetic of fp16 and bf16: computes in fp32 and rounds to nearest even. The kernels of the codec of the same
// name convert the elements, because a block of that codec is an array of such elements. Rounding twice, to fp32 and
// then to the type, does no harm: 24 significant bits are more than twice the type's 11 or 8.
struct HalfOps {
  static constexpr size_t kChunk = 512;  // 2 KiB of fp32: stays in the L1 cache
  static constexpr size_t kBytes = 2;
  static constexpr size_t kLeastPiece = 16;
  using Floats = std::array<float, kChunk>;

  static void add(const Codec& codec, const uint8_t* a, const uint8_t* b, uint8_t* sum, size_t count) noexcept {
    Floats floats;
    for (size_t i = 0; i < count; i += kChunk) {
      const size_t chunk = std::min(kChunk, count - i);
      const size_t at = i * kBytes;
      const size_t bytes = chunk * kBytes;
      // Neither call can fail or stop early, because the lengths match.
      (void)codec.decode({b + at, bytes}, {floats.data(), chunk});
      (void)codec.hop({a + at, bytes}, {floats.data(), chunk}, {sum + at, bytes});
    }
  }

  static void divide(const Codec& codec, uint8_t* elements, size_t count, unsigned divisor) noexcept {
    Floats floats;
    for (size_t i = 0; i < count; i += kChunk) {
      const size_t chunk = std::min(kChunk, count - i);
      const std::span<uint8_t> halves(elements + i * kBytes, chunk * kBytes);
      (void)codec.decode(halves, {floats.data(), chunk});
      PlainOps<Plain<float>>::divide(codec, reinterpret_cast<uint8_t*>(floats.data()), chunk, divisor);
      (void)codec.encode({floats.data(), chunk}, halves);
    }
  }

  // Converts pieces of all arrays to fp32, adds them, and rounds to the type in two steps, of which the first is to
  // odd.
  static void sum_exactly(const Codec& codec, const void* const* in, unsigned arrays, unsigned divisor, uint8_t* out,
                          size_t count) noexcept {
    std::array<float, kMaxWorld * kLeastPiece> floats;
    std::array<float, kChunk> sums;
    std::array<const void*, kMaxWorld> pieces;
    const size_t most = std::min(kChunk, floats.size() / arrays / kLeastPiece * kLeastPiece);
    for (size_t i = 0; i < count; i += most) {
      const size_t piece = std::min(most, count - i);
      const size_t bytes = piece * kBytes;
      for (unsigned array = 0; array < arrays; ++array) {
        float* const to = floats.data() + array * most;
        (void)codec.decode({static_cast<const uint8_t*>(in[array]) + i * kBytes, bytes}, {to, piece});
        pieces[array] = to;
      }
      exact_sum(codec.isa(), ExactSumJob<float>{pieces.data(), arrays, divisor, sums.data(), piece, true});
      (void)codec.encode({sums.data(), piece}, {out + i * kBytes, bytes});
    }
  }
};

template <class Picked>
constexpr ElementOps ops_of(ElementCombine add, decltype(ElementOps::divide) divide = nullptr,
                            decltype(ElementOps::sum_exactly) sum_exactly = nullptr) {
  return {add, Picked::kMin, Picked::kMax, divide, sum_exactly};
}

constexpr ElementOps kFloat32Ops =
    ops_of<Pick<int32_t, 23>>(nullptr, PlainOps<Plain<float>>::divide, sum_exactly<float>);
constexpr ElementOps kFloat64Ops =
    ops_of<Pick<int64_t, 52>>(PlainOps<Plain<double>>::kAdd, PlainOps<Plain<double>>::divide, sum_exactly<double>);
constexpr ElementOps kFloat16Ops = ops_of<Pick<int16_t, 10>>(HalfOps::add, HalfOps::divide, HalfOps::sum_exactly);
constexpr ElementOps kBfloat16Ops = ops_of<Pick<int16_t, 7>>(HalfOps::add, HalfOps::divide, HalfOps::sum_exactly);
constexpr ElementOps kInt32Ops = ops_of<Pick<int32_t>>(PlainOps<Plain<uint32_t>>::kAdd);
constexpr ElementOps kInt64Ops = ops_of<Pick<int64_t>>(PlainOps<Plain<uint64_t>>::kAdd);
constexpr ElementOps kBytesOps = ops_of<Pick<uint8_t>>(PlainOps<Plain<uint8_t>>::kAdd);

inline const ElementOps& element_ops(ElementType type) noexcept {
  switch (type) {
    case ElementType::kFloat32:
      return kFloat32Ops;
    case ElementType::kFloat64:
      return kFloat64Ops;
    case ElementType::kFloat16:
      return kFloat16Ops;
    case ElementType::kBfloat16:
      return kBfloat16Ops;
    case ElementType::kInt32:
      return kInt32Ops;
    case ElementType::kInt64:
      return kInt64Ops;
    case ElementType::kBytes:
      break;
  }
  return kBytesOps;
}

}  // namespace
}  // namespace gradlane
