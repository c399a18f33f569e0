// op_kind.h - kinds of operations, types of elements, reductions, and their names
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradlane {

enum class OpKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier,
  // These need links between all ranks: StrategyId::Kind::kDirect.
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
};
inline constexpr OpKind kLastKind = OpKind::kAllToAll;

enum class ElementType : uint8_t { kFloat32, kFloat64, kFloat16, kBfloat16, kInt32, kInt64, kBytes };

// How elements of different ranks become one. Averages are sums divided by the number of ranks (floating types only).
// Minima and maxima are exact, of all types, whatever the codec: elements travel as they are. Where one is NaN, so is
// the result (IEEE 754-2019, minimum and maximum), and -0 is less than +0; bytes are unsigned.
enum class Reduction : uint8_t { kSum, kAverage, kMin, kMax };

[[nodiscard]] constexpr bool is_floating(ElementType type) noexcept { return type < ElementType::kInt32; }
// Its result is a sum over the ranks, or what else a Reduction makes of their elements.
[[nodiscard]] constexpr bool reduces(OpKind kind) noexcept {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduceScatter || kind == OpKind::kReduce;
}
// Whether ranks add what they have: a barrier is the sum of one element.
[[nodiscard]] constexpr bool adds(OpKind kind) noexcept { return reduces(kind) || kind == OpKind::kBarrier; }
// Each of its blocks goes from one rank to one other.
[[nodiscard]] constexpr bool delivers(OpKind kind) noexcept {
  return kind == OpKind::kGather || kind == OpKind::kScatter || kind == OpKind::kAllToAll;
}
// What becomes of a block is the same on all ranks, and goes to all.
[[nodiscard]] constexpr bool reaches_all(OpKind kind) noexcept {
  return !delivers(kind) && kind != OpKind::kReduceScatter && kind != OpKind::kReduce;
}
[[nodiscard]] constexpr bool has_root(OpKind kind) noexcept {
  return kind == OpKind::kBroadcast || kind == OpKind::kReduce || kind == OpKind::kGather || kind == OpKind::kScatter;
}
[[nodiscard]] constexpr bool picks(Reduction reduction) noexcept {
  return reduction == Reduction::kMin || reduction == Reduction::kMax;
}
// Elements go through a codec; all others travel as they are.
[[nodiscard]] constexpr bool encoded(ElementType type, Reduction reduction) noexcept {
  return type == ElementType::kFloat32 && !picks(reduction);
}
// Its data has a block for each rank, all of the same length.
[[nodiscard]] constexpr bool has_shares(OpKind kind) noexcept {
  return kind == OpKind::kReduceScatter || kind == OpKind::kAllGather || delivers(kind);
}
[[nodiscard]] size_t element_bytes(ElementType type) noexcept;
[[nodiscard]] const char* element_name(ElementType type) noexcept;
[[nodiscard]] const char* op_name(OpKind kind) noexcept;
[[nodiscard]] const char* reduction_name(Reduction reduction) noexcept;

}  // namespace gradlane
