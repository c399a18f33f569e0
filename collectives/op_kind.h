// op_kind.h - kinds of operations, types of elements, reductions, and their names
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/codec_table.h"

namespace gradlane {

enum class OpKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier,
  // These need links between all ranks, so only StrategyId::Kind::kDirect supports them.
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
};
inline constexpr OpKind kLastKind = OpKind::kAllToAll;

enum class ElementType : uint8_t { kFloat32, kFloat64, kFloat16, kBfloat16, kInt32, kInt64, kBytes };

// The operation that combines the elements of all ranks. An average is the sum divided by the number of ranks (floating
// types only). Minima and maxima are exact for all types, because their elements travel without a codec. If an element
// is NaN, the result is NaN (IEEE 754-2019, minimum and maximum). -0 is less than +0. Bytes are unsigned.
enum class Reduction : uint8_t { kSum, kAverage, kMin, kMax };

[[nodiscard]] constexpr bool is_floating(ElementType type) noexcept { return type < ElementType::kInt32; }
// Returns whether the result combines the elements of all ranks by a Reduction.
[[nodiscard]] constexpr bool reduces(OpKind kind) noexcept {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduceScatter || kind == OpKind::kReduce;
}
// Returns whether ranks add their elements. A barrier counts: it is the sum of one element per rank.
[[nodiscard]] constexpr bool adds(OpKind kind) noexcept { return reduces(kind) || kind == OpKind::kBarrier; }
// Returns whether each block goes from one rank to exactly one other rank.
[[nodiscard]] constexpr bool delivers(OpKind kind) noexcept {
  return kind == OpKind::kGather || kind == OpKind::kScatter || kind == OpKind::kAllToAll;
}
// Returns whether every rank ends with the result of every block.
[[nodiscard]] constexpr bool reaches_all(OpKind kind) noexcept {
  return !delivers(kind) && kind != OpKind::kReduceScatter && kind != OpKind::kReduce;
}
[[nodiscard]] constexpr bool has_root(OpKind kind) noexcept {
  return kind == OpKind::kBroadcast || kind == OpKind::kReduce || kind == OpKind::kGather || kind == OpKind::kScatter;
}
[[nodiscard]] constexpr bool picks(Reduction reduction) noexcept {
  return reduction == Reduction::kMin || reduction == Reduction::kMax;
}
// Returns whether elements go through a codec that serves these types. All others travel uncompressed.
[[nodiscard]] constexpr bool encoded(ElementType type, Reduction reduction, Serves serves) noexcept {
  if (picks(reduction)) return false;
  if (serves == Serves::kFloat32) return type == ElementType::kFloat32;
  return is_floating(type) && (serves == Serves::kAllFloats || type != ElementType::kFloat64);
}
// Returns whether the data has one block for each rank, all of the same length.
[[nodiscard]] constexpr bool has_shares(OpKind kind) noexcept {
  return kind == OpKind::kReduceScatter || kind == OpKind::kAllGather || delivers(kind);
}
[[nodiscard]] size_t element_bytes(ElementType type) noexcept;
[[nodiscard]] const char* element_name(ElementType type) noexcept;
[[nodiscard]] const char* op_name(OpKind kind) noexcept;
[[nodiscard]] const char* reduction_name(Reduction reduction) noexcept;

}  // namespace gradlane
