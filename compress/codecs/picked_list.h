// picked_list.h - list of the elements of a sparse record that have a value (all kernels but those of AVX-512)
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/codecs/sparse_record.h"

namespace gradlane {
namespace {

// The elements of a record that have a value, in order. The arrays have space at their ends, because filter() may write
// kLanes values each time.
struct Picked {
  Picked() {}  // leaves the arrays unset
  size_t count = 0;
  alignas(64) uint32_t place[kRecordFloats + kLanes];
  alignas(64) float value[kRecordFloats + kLanes];
};

// Writes the elements' places, as a list, or as a bitmap where that is shorter. Returns the bytes written.
GRADLANE_INLINE size_t write_places(const Picked& picked, size_t floats, uint8_t* out) {
  const size_t bitmap = bitmap_bytes(floats);
  if (picked.count <= bitmap) [[likely]] {
    out[0] = static_cast<uint8_t>(picked.count);
    for (size_t i = 0; i < picked.count; ++i) out[1 + i] = static_cast<uint8_t>(picked.place[i]);
    return 1 + picked.count;
  }
  out[0] = kBitmap;
  std::memset(out + 1, 0, bitmap);
  for (size_t i = 0; i < picked.count; ++i) {
    uint8_t& byte = out[1 + picked.place[i] / 8];
    byte = static_cast<uint8_t>(byte | 1U << picked.place[i] % 8);
  }
  return 1 + bitmap;
}

// Writes the places of at most kFew elements, as a list. kFew bytes may be written.
constexpr size_t kFew = kLanes;
GRADLANE_INLINE void write_few_places(const Picked& picked, uint8_t* out) {
  store_bytes(load_lanes<uint32_t>(picked.place), out);
}

// Reads the places and values of a valid record.
GRADLANE_INLINE void unpack(const CodecParams& params, const SparseRecord& record, Picked& picked) {
  picked.count = record.count;
  if (kParts == 1 && record.count <= kLanes && !record.bitmap && record.width == kWholeFloat) [[likely]] {
    store(load_bytes(record.places, record.count), picked.place);
    store(load_lanes<float>(record.values, record.count), picked.value);
    return;
  }
  size_t i = 0;
  for_values(params, record, [&](size_t place, float value) {
    picked.place[i] = static_cast<uint32_t>(place);
    picked.value[i++] = value;
  });
}

// Adds the elements of two records. `sum` gets all elements whose sum is not 0. Both inputs must have space for one
// more element, which marks their end.
GRADLANE_INLINE void merge(Picked& own, Picked& other, Picked& sum) {
  for (Picked* const each : {&own, &other}) {
    each->place[each->count] = kRecordFloats;
    each->value[each->count] = 0;
  }
  size_t count = 0;
  // There is no branch in the loop: how the places of two ranks alternate cannot be predicted.
  for (size_t i = 0, k = 0;;) {
    const uint32_t mine = own.place[i], others = other.place[k];
    const uint32_t place = mine < others ? mine : others;
    if (place == kRecordFloats) break;
    const float a = others == place ? other.value[k] : 0.0F;
    const float b = mine == place ? own.value[i] : 0.0F;
    const float value = a + b == a + b ? a + b : __builtin_nanf("");
    sum.place[count] = place;
    sum.value[count] = value;
    count += value != 0 ? 1 : 0;
    i += mine == place ? 1 : 0;
    k += others == place ? 1 : 0;
  }
  sum.count = count;
}

// Picks the elements of a record that are sent. With kKeep, the other elements and the rounding errors go to the
// states.
template <bool kKeep, bool kLattice, class Choice>
GRADLANE_INLINE void pick(const Choice& choice, const Own& own, float exact, size_t floats, Picked& picked) {
  size_t picks = 0;
  each(floats, [&](size_t i, size_t count) GRADLANE_INLINE_LAMBDA {
    Floats residual = all(0.0F), second = all(0.0F);
    if constexpr (kKeep) residual = load(own.residual + i, count);
    if constexpr (kKeep && Choice::kSecond) {
      if (own.second != nullptr) second = load(own.second + i, count);
    }
    const Floats x = choice.x(load(own.in + i, count), residual, second);
    const Mask chosen = choice.takes(x, i);
    Floats rest = x;
    if (any(chosen)) [[unlikely]] {
      const Floats sent = one_nan(kLattice ? to_multiples(x, exact) : x);
      if constexpr (kKeep) rest = choose(chosen, kLattice ? only(is_finite(x), x - sent) : all(0.0F), x);
      if constexpr (Choice::kSecond) second = only(!chosen, second);
      filter(chosen, count_from(static_cast<uint32_t>(i)), picked.place + picks);
      picks += filter(chosen, sent, picked.value + picks);
    }
    if constexpr (kKeep) store(rest, own.residual + i, count);
    if constexpr (kKeep && Choice::kSecond) {
      if (own.second != nullptr) store(second, own.second + i, count);
    }
  });
  picked.count = picks;
}

}  // namespace
}  // namespace gradlane
