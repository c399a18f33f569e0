// elements.h - sums and averages of the types of elements (coder.cc only)
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

#include "collectives/operation.h"
#include "collectives/wire.h"
#include "compress/codec.h"

namespace gradlane {

// The arithmetic of one type on elements at any address. `codec` is the Coder's.
struct ElementOps {
  // sum = a + b; sum does not overlap them. Null for fp32, which the codec adds.
  void (*add)(const Codec& codec, const uint8_t* a, const uint8_t* b, uint8_t* sum, size_t count) noexcept;
  // Null for integers.
  void (*divide)(const Codec& codec, uint8_t* elements, size_t count, unsigned divisor) noexcept;
};

namespace {

// The NaN of all sums: positive and quiet, no other bit set.
template <class T>
T one_nan(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

// An element that CPUs calculate with. T is unsigned for integers: they wrap.
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

// Runs `pass(index, count)` over chunks of kChunk elements and what is left: with its trip count known, GCC makes
// vector code of a loop at -O2.
template <size_t kChunk, class Pass>
void for_chunks(size_t count, Pass pass) {
  size_t i = 0;
  for (; i + kChunk <= count; i += kChunk) pass(i, std::integral_constant<size_t, kChunk>());
  if (i < count) pass(i, count - i);
}

template <class Element>
struct PlainOps {
  using Word = typename Element::Word;
  static constexpr size_t kChunk = kGranuleBytes / sizeof(Word);

  static void add(const Codec&, const uint8_t* __restrict a, const uint8_t* __restrict b, uint8_t* __restrict sum,
                  size_t count) noexcept {
    for_chunks<kChunk>(count, [=](size_t first, auto chunk) {
      const size_t start = first * sizeof(Word);
      for (size_t i = 0; i < chunk; ++i) {
        const size_t at = start + i * sizeof(Word);
        store(sum + at, Element::add(load<Word>(a + at), load<Word>(b + at)));
      }
    });
  }

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

// fp16 and bf16 are calculated with as fp32 and rounded to nearest even, by the kernels of the codec of that name: a
// block of theirs is the elements themselves. Rounding twice does no harm, 24 bits being more than twice their 11 or 8.
struct HalfOps {
  static constexpr size_t kChunk = 512;  // 2 KiB of fp32: stays in the L1 cache
  static constexpr size_t kBytes = 2;
  using Floats = std::array<float, kChunk>;

  static void add(const Codec& codec, const uint8_t* a, const uint8_t* b, uint8_t* sum, size_t count) noexcept {
    Floats floats;
    for (size_t i = 0; i < count; i += kChunk) {
      const size_t chunk = std::min(kChunk, count - i);
      const size_t at = i * kBytes;
      const size_t bytes = chunk * kBytes;
      // Neither can fail or stop early: the lengths are right.
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
};

template <class T>
constexpr ElementOps plain_ops() {
  if constexpr (std::is_floating_point_v<T>) {
    return {PlainOps<Plain<T>>::add, PlainOps<Plain<T>>::divide};
  } else {
    return {PlainOps<Plain<T>>::add, nullptr};
  }
}

constexpr ElementOps kFloat32Ops = {nullptr, PlainOps<Plain<float>>::divide};
constexpr ElementOps kFloat64Ops = plain_ops<double>();
constexpr ElementOps kHalfOps = {HalfOps::add, HalfOps::divide};
constexpr ElementOps kInt32Ops = plain_ops<uint32_t>();
constexpr ElementOps kInt64Ops = plain_ops<uint64_t>();
constexpr ElementOps kBytesOps = plain_ops<uint8_t>();

inline const ElementOps& element_ops(ElementType type) noexcept {
  switch (type) {
    case ElementType::kFloat32:
      return kFloat32Ops;
    case ElementType::kFloat64:
      return kFloat64Ops;
    case ElementType::kFloat16:
    case ElementType::kBfloat16:
      return kHalfOps;
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
