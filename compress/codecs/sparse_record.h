// sparse_record.h - records of up to 256 floats: which of them have a value, and the values; included by the kernels of
// every instruction set that are made with the kit
//
// docs/codec-format.md says the same in prose. In an unnamed namespace for the same reason as layout.h.
#pragma once

#include <bit>

#include "compress/kit/operators.h"
#include "compress/sparse_layout.h"

namespace gradlane {
namespace {

// The elements of a record that have a value, in order, with room for what filter() writes behind them.
struct Picked {
  Picked() {}  // leaves them unset
  size_t count = 0;
  alignas(64) uint32_t place[kRecordFloats + kLanes];
  alignas(64) float value[kRecordFloats + kLanes];
};

// ---- Writing

// Bits that each value takes on the lattice; kWholeFloat if one of them is not on it.
inline unsigned width_of(const CodecParams& params, const Picked& picked, uint32_t (&steps)[kRecordFloats]) {
  uint32_t used = 0;
  for (size_t i = 0; i < picked.count; ++i) {
    const float value = picked.value[i];
    if (!(__builtin_fabsf(value) < 2 * params.exact)) return kWholeFloat;  // 2^24 steps
    const auto step = static_cast<int32_t>(value * params.steps_per_one);
    if (static_cast<float>(step) * params.step != value) return kWholeFloat;
    used |= static_cast<uint32_t>(step ^ step >> 31);
    steps[i] = static_cast<uint32_t>(step);
  }
  return 33 - static_cast<unsigned>(std::countl_zero(used));
}

inline void write_steps(const uint32_t* steps, size_t count, unsigned width, uint8_t* out) {
  uint64_t bits = 0;
  unsigned have = 0;
  for (size_t i = 0; i < count; ++i) {
    bits |= static_cast<uint64_t>(steps[i] & ((uint64_t{1} << width) - 1)) << have;
    for (have += width; have >= 8; have -= 8, bits >>= 8) *out++ = static_cast<uint8_t>(bits);
  }
  if (have != 0) *out = static_cast<uint8_t>(bits);
}

// The elements' places, as a list, or as a bitmap where that is shorter. Returns their bytes.
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

// Returns the record's bytes, or 0 if it does not fit.
[[gnu::noinline]] size_t write_any_record(const CodecParams& params, const Picked& picked, size_t floats, uint8_t* out,
                                          size_t room) {
  const bool lattice = params.arguments.value_bits != 0 && picked.count != 0;
  uint32_t steps[kRecordFloats];
  const unsigned width = lattice ? width_of(params, picked, steps) : kWholeFloat;
  const size_t places = 1 + smaller(picked.count, bitmap_bytes(floats));
  const size_t values = value_bytes(picked.count, width);
  if (places + (lattice ? 1 : 0) + values > room) return 0;
  uint8_t* at = out + write_places(picked, floats, out);
  if (lattice) *at++ = static_cast<uint8_t>(width);
  if (width == kWholeFloat) {
    std::memcpy(at, picked.value, values);
  } else {
    write_steps(steps, picked.count, width, at);
  }
  return static_cast<size_t>(at + values - out);
}

// The same. Most records have few values, and room behind them.
GRADLANE_INLINE size_t write_record(const CodecParams& params, const Picked& picked, size_t floats, uint8_t* out,
                                    size_t room) {
  constexpr size_t kFew = kLanes;
  const size_t count = picked.count;
  if (count > smaller(kFew, bitmap_bytes(floats)) || room < 1 + kFew * 5 || params.arguments.value_bits != 0)
      [[unlikely]]
    return write_any_record(params, picked, floats, out, room);
  out[0] = static_cast<uint8_t>(count);
  store_bytes(load_lanes<uint32_t>(picked.place), out + 1);
  store(load(picked.value), out + 1 + count);
  return 1 + count * 5;
}

// ---- Reading

// One record of a block, all of it there.
struct SparseRecord {
  size_t count;
  bool bitmap;
  const uint8_t* places;
  unsigned width;
  const uint8_t* values;
  const uint8_t* end;
};

// Whether places ascend, and the last one is that of a float.
GRADLANE_INLINE bool in_order(const uint8_t* places, size_t count, size_t floats) {
  if (count == 0) return true;
  if (kParts == 1 && count <= kLanes) [[likely]] {
    // The byte in front of the first one is there, and does not matter.
    const Mask good = load_bytes(places - 1, count) < load_bytes(places, count);
    const uint32_t all_good = (1U << count) - 1;
    return ((mask_bits(good) | 1) & all_good) == all_good && places[count - 1] < floats;
  }
  bool ascending = true;
  for (size_t i = 1; i < count; ++i) ascending &= places[i - 1] < places[i];
  return ascending && places[count - 1] < floats;
}

[[gnu::noinline]] Status open_bitmap(const uint8_t* at, const uint8_t* end, size_t floats, SparseRecord& record) {
  const size_t bytes = bitmap_bytes(floats);
  if (static_cast<size_t>(end - at) < bytes) return Status::kShort;
  record.count = 0;
  record.bitmap = true;
  record.places = at;
  record.values = at + bytes;
  for (size_t i = 0; i < bytes; ++i) record.count += static_cast<size_t>(std::popcount(at[i]));
  return floats % 8 == 0 || at[bytes - 1] >> floats % 8 == 0 ? Status::kOk : Status::kBadTail;
}

GRADLANE_INLINE Status open_places(const uint8_t* at, const uint8_t* end, size_t floats, SparseRecord& record) {
  if (at == end) return Status::kShort;
  const size_t count = *at++;
  if (count > bitmap_bytes(floats)) [[unlikely]]
    return count == kBitmap ? open_bitmap(at, end, floats, record) : Status::kBadEscape;
  if (static_cast<size_t>(end - at) < count) return Status::kShort;
  record.count = count;
  record.bitmap = false;
  record.places = at;
  record.values = at + count;
  return in_order(at, count, floats) ? Status::kOk : Status::kBadTail;
}

// The record of `floats` values (at most 256) at `at`.
GRADLANE_INLINE Status open_record(const CodecParams& params, const uint8_t* at, const uint8_t* end, size_t floats,
                                   SparseRecord& record) {
  if (const Status status = open_places(at, end, floats, record); status != Status::kOk) return status;
  record.width = kWholeFloat;
  if (params.arguments.value_bits != 0 && record.count != 0) {
    if (record.values == end) return Status::kShort;
    record.width = *record.values++;
    if (record.width == 0 || (record.width > kMostWidth && record.width != kWholeFloat)) return Status::kBadEscape;
  }
  const size_t bytes = value_bytes(record.count, record.width);
  if (static_cast<size_t>(end - record.values) < bytes) return Status::kShort;
  record.end = record.values + bytes;
  return Status::kOk;
}

// Value i of those that there are.
GRADLANE_INLINE float value_of(const CodecParams& params, const SparseRecord& record, size_t i) {
  if (record.width == kWholeFloat) [[likely]] {
    float value;
    std::memcpy(&value, record.values + i * sizeof value, sizeof value);
    return value;
  }
  const size_t bit = i * record.width;
  const uint8_t* const at = record.values + bit / 8;
  uint32_t bits = 0;
  std::memcpy(&bits, at, smaller(sizeof bits, static_cast<size_t>(record.end - at)));
  bits = bits >> bit % 8 << (32 - record.width);
  return static_cast<float>(static_cast<int32_t>(bits) >> (32 - record.width)) * params.step;
}

// f(place, value) for all of them, in order.
template <class F>
GRADLANE_INLINE void for_values(const CodecParams& params, const SparseRecord& record, F f) {
  if (!record.bitmap) [[likely]] {
    for (size_t i = 0; i < record.count; ++i) f(size_t{record.places[i]}, value_of(params, record, i));
    return;
  }
  size_t i = 0;
  for (const uint8_t* at = record.places; i < record.count; ++at) {
    for (unsigned bits = *at; bits != 0; bits &= bits - 1) {
      const auto bit = static_cast<size_t>(std::countr_zero(bits));
      f(static_cast<size_t>(at - record.places) * 8 + bit, value_of(params, record, i++));
    }
  }
}

// The places and values of a valid record.
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

// What two have, added up, of all elements whose sum is not 0. Both must have room for one more.
GRADLANE_INLINE void merge(Picked& own, Picked& other, Picked& sum) {
  for (Picked* const each : {&own, &other}) {
    each->place[each->count] = kRecordFloats;
    each->value[each->count] = 0;
  }
  size_t count = 0;
  // No branch within: how the places of two ranks lie is chance.
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

}  // namespace
}  // namespace gradlane
