// baselines.h - lengths of blocks of trunc and deflate; included by their kernels and their rows
//
// In an unnamed namespace for the same reason as layout.h.
#pragma once

#include "compress/layout.h"

namespace gradlane {
namespace {

// ---- trunc: one stream of bits

constexpr size_t trunc_bytes(unsigned bits, size_t floats) { return (floats * bits + 7) / 8; }

// ---- deflate: records

constexpr size_t kStreamFloats = 2048;  // of a record, at most
constexpr size_t kStreamHead = 2;       // bytes; deflated records have two

constexpr size_t stream_records(size_t floats) { return (floats + kStreamFloats - 1) / kStreamFloats; }

constexpr size_t stream_max_bytes(size_t floats) {
  return stream_records(floats) * kStreamHead + floats * sizeof(float);
}

// No code of DEFLATE has less than a bit, nor stands for more than 258 bytes, and those come in pairs.
constexpr size_t stream_least_bytes(size_t floats) {
  return stream_records(floats) * kStreamHead + floats * sizeof(float) / 1032;
}

}  // namespace
}  // namespace gradlane
