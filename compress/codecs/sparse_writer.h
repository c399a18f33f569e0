// sparse_writer.h - the writer of sparse records of up to 256 floats; included by the kernels of every instruction set
// that are made with the kit
//
// Picked elements are kept as a list (picked_list.h), unless the translation unit has included picked_bits.h before
// this file.
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#ifndef GRADLANE_PICKED
#include "compress/codecs/picked_list.h"
#endif

namespace gradlane {
namespace {

// Returns the bits that each value takes as a number of steps, or kWholeFloat if a value is not on the lattice.
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

// Writes a record. Returns its bytes, or 0 if it does not fit.
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

// Writes a record as write_any_record() does, but faster in the usual case: few values, and enough space after them.
GRADLANE_INLINE size_t write_record(const CodecParams& params, const Picked& picked, size_t floats, uint8_t* out,
                                    size_t room) {
  const size_t count = picked.count;
  if (kParts == 1 && count == 0 && room != 0) {
    out[0] = 0;
    return 1;
  }
  if (count > smaller(kFew, bitmap_bytes(floats)) || room < 1 + kFew * 5 || params.arguments.value_bits != 0)
      [[unlikely]]
    return write_any_record(params, picked, floats, out, room);
  out[0] = static_cast<uint8_t>(count);
  write_few_places(picked, out + 1);
  store(load(picked.value), out + 1 + count);
  return 1 + count * 5;
}

}  // namespace
}  // namespace gradlane
