// ternary.h - encode() and hop() of codecs whose contributions are -s, 0 or s, in bit planes of step s; included by the
// translation units of selections
//
// A selection S says of sixteen floats which are contributed, with their signs: S(p)(magnitudes, position). So a group
// has two planes, and is added to a block plane by plane. Inf and NaN are contributed as they are.
//
// In an unnamed namespace for the same reason as layout.h.
#pragma once

#include <algorithm>

#include "compress/kit/operators.h"
#include "compress/plane_passes.h"

namespace gradlane {
namespace {

// Two's complement of -1, 0 and 1: plane 0, and all others.
struct TernaryPlanes {
  uint32_t low = 0;
  uint32_t sign = 0;

  [[nodiscard]] GRADLANE_INLINE uint32_t operator[](size_t plane) const { return plane == 0 ? low : sign; }
};

template <class S, bool kFeedback>
class TernarySelection {
 public:
  TernarySelection(const CodecParams& params, uint64_t position)
      : select_(params), position_(position), step_(all(params.step)) {}

  // A full group; false, and nothing done, if not all of it is finite. left: what stays.
  GRADLANE_INLINE bool get(const PlaneJob& job, size_t group, TernaryPlanes& planes, Floats (&left)[2]) const {
    const size_t i = group * kGroupFloats;
    TernaryPlanes second;
    const Mask finite = get_half(job, i, planes, left[0]) & get_half(job, i + kLanes, second, left[1]);
    planes.low |= second.low << kLanes;
    planes.sign |= second.sign << kLanes;
    return mask_bits(finite) == 0xffff;
  }

  GRADLANE_INLINE void owe(const PlaneJob& job, size_t group, const Floats (&left)[2]) const {
    if constexpr (kFeedback) {
      store(left[0], job.residual + group * kGroupFloats);
      store(left[1], job.residual + group * kGroupFloats + kLanes);
    }
  }

  // Any group, of which missing floats are 0: what is contributed, and what stays.
  void get_any(const PlaneJob& job, size_t group, float* out, float* left) const {
    std::memset(out, 0, kGroupFloats * sizeof(float));
    each(job.count(group), [&](size_t i, size_t count) GRADLANE_INLINE_LAMBDA {
      const Floats x = load_x(job, group * kGroupFloats + i, count);
      const Mask finite = is_finite(x);
      const Floats chosen = only(select_(abs(x), position_ + group * kGroupFloats + i), signed_as(x));
      store(choose(finite, chosen, x), out + i, count);
      store(only(finite, x - chosen) + all(0.0F), left + i, count);
    });
  }

 private:
  // Which are finite.
  GRADLANE_INLINE Mask get_half(const PlaneJob& job, size_t i, TernaryPlanes& planes, Floats& left) const {
    const Floats x = load_x(job, i, kLanes);
    const Mask chosen = select_(abs(x), position_ + i);
    planes = {mask_bits(chosen), mask_bits(chosen & (x < all(0.0F)))};
    // Never -0.
    if constexpr (kFeedback) left = x - only(chosen, signed_as(x)) + all(0.0F);
    return is_finite(x);
  }

  static GRADLANE_INLINE Floats load_x(const PlaneJob& job, size_t i, size_t count) {
    const Floats x = load(job.in + i, count);
    if constexpr (kFeedback) return add(x, load(job.residual + i, count));
    return x;
  }
  GRADLANE_INLINE Floats signed_as(const Floats& x) const {
    return floats_of(bits_of(step_) | (bits_of(x) & all(0x80000000U)));
  }

  S select_;
  uint64_t position_;
  Floats step_;
};

// ---- Groups whose tags are widths, plane by plane

// Calls f(0), ..., f(kCount - 1), without a loop.
template <size_t kCount, class F>
GRADLANE_INLINE void unrolled(F f) {
  [&]<size_t... j>(std::index_sequence<j...>) GRADLANE_INLINE_LAMBDA { (f(j), ...); }
  (std::make_index_sequence<kCount>());
}

// Writes kPlanes planes, of which those that repeat the sign do not count.
template <size_t kPlanes>
GRADLANE_INLINE void put_trimmed(const uint32_t (&planes)[kPlanes], PlaneSink& sink, uint8_t* tags, size_t group) {
  unsigned steps = planes[0] != 0 ? 1 : 0;
  unrolled<kPlanes - 1>(
      [&](size_t j) GRADLANE_INLINE_LAMBDA { steps |= static_cast<unsigned>(planes[j + 1] != planes[j]) << (j + 1); });
  const auto width = static_cast<unsigned>(std::countl_zero(2 * steps + 1) ^ 31);  // bit_width() without a branch
  unrolled<kPlanes>([&](size_t j) GRADLANE_INLINE_LAMBDA { store_plane(sink.at + j * kPlaneBytes, planes[j]); });
  sink.at += width * kPlaneBytes;
  set_plane_tag(tags, group, width);
}

// Adds two numbers of less than kPlanes bits each; false, and nothing done, without room for all planes.
template <size_t kPlanes>
GRADLANE_INLINE bool put_sum(const uint8_t* at, unsigned width, TernaryPlanes other, PlaneSink& sink, uint8_t* tags,
                             size_t group) {
  static constexpr uint8_t kZeros[kPlaneBytes] = {};
  if (sink.room() < static_cast<ptrdiff_t>(kPlanes * kPlaneBytes)) return false;
  const uint8_t* const from = width == 0 ? kZeros : at;
  const size_t last = width == 0 ? 0 : width - 1;
  uint32_t planes[kPlanes];
  uint32_t carry = 0;
  unrolled<kPlanes>([&](size_t j) GRADLANE_INLINE_LAMBDA {
    const uint32_t a = load_plane(from + smaller(j, last) * kPlaneBytes);
    const uint32_t b = other[j];
    planes[j] = a ^ b ^ carry;
    carry = (a & b) | (carry & (a ^ b));
  });
  put_trimmed(planes, sink, tags, group);
  return true;
}

// ---- Sources of write_planes(), which see

template <class S, bool kFeedback>
struct TernaryEncoder {
  PlaneJob job;
  TernarySelection<S, kFeedback> selection;

  GRADLANE_INLINE size_t run(size_t group, PlaneSink& to, uint8_t* tags) {
    const PlaneJob from = job;  // copies, so that bytes that are written are none of theirs
    const TernarySelection<S, kFeedback> select = selection;
    PlaneSink sink = to;
    for (const size_t full = from.full_groups(); group < full; ++group) {
      TernaryPlanes planes;
      Floats left[2];
      if (!select.get(from, group, planes, left)) break;
      if (sink.room() < static_cast<ptrdiff_t>(2 * kPlaneBytes)) break;
      put_trimmed({planes.low, planes.sign}, sink, tags, group);
      select.owe(from, group, left);
    }
    to = sink;
    return group;
  }

  [[gnu::noinline]] bool step(size_t group, PlaneSink& sink, uint8_t* tags) {
    alignas(32) float chosen[kGroupFloats], left[kGroupFloats];
    selection.get_any(job, group, chosen, left);
    CodedGroup coded;
    const size_t count = job.count(group);
    if (!put_planes<AnyGroup>(job.params, chosen, count, group, sink, tags, coded)) return false;
    if constexpr (kFeedback) std::memcpy(group_at(job.residual, group), left, count * sizeof(float));
    return true;
  }
};

template <class S, bool kFeedback>
struct TernaryAdder {
  PlaneJob job;
  TernarySelection<S, kFeedback> selection;
  PlaneInput input;

  GRADLANE_INLINE size_t run(size_t group, PlaneSink& to, uint8_t* tags) {
    const PlaneJob from = job;  // copies, as above
    const TernarySelection<S, kFeedback> select = selection;
    PlaneSink sink = to;
    PlaneInput in = input;
    for (const size_t full = from.full_groups(); group < full; ++group) {
      const unsigned width = in.tag(group);
      TernaryPlanes planes;
      Floats left[2];
      if (width == kEscape || !select.get(from, group, planes, left)) break;
      const bool put = width < 4    ? put_sum<4>(in.at, width, planes, sink, tags, group)
                       : width < 8  ? put_sum<8>(in.at, width, planes, sink, tags, group)
                       : width < 14 ? put_sum<14>(in.at, width, planes, sink, tags, group)
                                    : false;
      if (!put) break;
      in.at += width * kPlaneBytes;
      select.owe(from, group, left);
    }
    to = sink;
    input = in;
    return group;
  }

  [[gnu::noinline]] bool step(size_t group, PlaneSink& sink, uint8_t* tags) {
    PlaneInput after = input;
    const uint8_t* payload;
    const Escape escape = after.next(group, payload);
    alignas(32) float chosen[kGroupFloats], left[kGroupFloats], sums[kGroupFloats];
    selection.get_any(job, group, chosen, left);
    AnyGroup::get(job.params, escape, payload, sums);
    AnyGroup::add_to(sums, chosen);
    const size_t count = job.count(group);
    for (size_t i = count; i < kGroupFloats; ++i) sums[i] = 0;
    CodedGroup coded;
    if (!put_planes<AnyGroup>(job.params, sums, count, group, sink, tags, coded)) return false;
    if constexpr (kFeedback) std::memcpy(group_at(job.residual, group), left, count * sizeof(float));
    input = after;
    return true;
  }
};

// ---- Entry points

template <class S>
struct TernaryPasses {
  static EncodeResult encode(const CodecParams& params, const EncodeJob& job) noexcept {
    return job.residual != nullptr ? encode_with<true>(params, job) : encode_with<false>(params, job);
  }
  static HopResult hop(const CodecParams& params, const HopJob& job) noexcept {
    return job.residual != nullptr ? hop_with<true>(params, job) : hop_with<false>(params, job);
  }

 private:
  template <bool kFeedback>
  [[gnu::noinline]] static EncodeResult encode_with(const CodecParams& params, const EncodeJob& job) noexcept {
    TernaryEncoder<S, kFeedback> source{{params, job.in, job.residual, job.floats}, {params, job.position}};
    return write_planes(source, job.floats, 0, job.out, job.room);
  }

  template <bool kFeedback>
  [[gnu::noinline]] static HopResult hop_with(const CodecParams& params, const HopJob& job) noexcept {
    const size_t first = job.first;
    PlaneInput input;
    if (const Status status = open_planes(job, input); status != Status::kOk) return {status, 0, 0};
    const size_t floats = job.floats - first;
    if (floats == 0) return {Status::kOk, 0, 0};
    float* const residual = kFeedback ? job.residual + first : nullptr;
    TernaryAdder<S, kFeedback> source{
        {params, job.local + first, residual, floats}, {params, job.position + first}, input};
    const EncodeResult written = write_planes(source, floats, least_planes(input, floats), job.out, job.room);
    return {Status::kOk, written.floats, written.bytes};
  }
};

}  // namespace
}  // namespace gradlane
