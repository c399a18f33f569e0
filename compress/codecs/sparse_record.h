// sparse_record.h - the reader of sparse records of up to 256 floats; included by the kernels of every instruction set
// that are made with the kit
//
// docs/codec-format.md describes these records. The code is in an unnamed namespace; layout.h says why.
#pragma once

#include <bit>

#include "compress/kit/operators.h"
#include "compress/sparse_layout.h"

namespace gradlane {
namespace {

// One record of a block, which is complete.
struct SparseRecord {
  size_t count;
  bool bitmap;
  const uint8_t* places;
  unsigned width;
  const uint8_t* values;
  const uint8_t* end;
};

// Returns whether places ascend, and the last one is below `floats`.
GRADLANE_INLINE bool in_order(const uint8_t* places, size_t count, size_t floats) {
  if (count == 0) return true;
  if (kParts == 1 && count <= kLanes) [[likely]] {
    // The byte before the first place exists, and its value does not matter.
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

// Opens the record of `floats` values (at most 256) at `at`.
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

// Returns the i-th value of the record.
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

// Calls f(place, value) for all values, in order.
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

// The floats that a rank adds, and its states, which are null if it keeps nothing.
struct Own {
  const float* in;
  float* residual;
  float* second;

  [[nodiscard]] Own from(size_t i) const {
    return {in + i, residual == nullptr ? nullptr : residual + i, second == nullptr ? nullptr : second + i};
  }
};

}  // namespace
}  // namespace gradlane
