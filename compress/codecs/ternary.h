// ternary.h - encode() and hop() of codecs whose contributions are -s, 0 or s, in bit planes of step s; included by the
// translation units of selections
//
// A selection S chooses which of sixteen floats are contributed, with their signs: S(p)(magnitudes, position). It never
// chooses 0. Inf and NaN are contributed unchanged. `Runs` has the shortcuts of an instruction set for full groups
// without escapes, like `TernaryRuns`.
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/codecs/ternary_runs.h"
#include "compress/kit/operators.h"

namespace gradlane {
namespace {

template <class S, bool kWithFeedback>
class TernarySelection {
 public:
  static constexpr bool kFeedback = kWithFeedback;
  using Group = TernaryGroup;
  using Left = FloatPair;  // new residuals

  TernarySelection(const CodecParams& params, uint64_t position)
      : select_(params), position_(position), step_(all(params.step)) {}

  // Loads a full group, adds its residuals if there is feedback, and chooses the floats to contribute.
  GRADLANE_INLINE Group take(const PlaneJob& job, size_t group) const {
    const auto half = [&](size_t i, Floats& x, Mask& chosen) GRADLANE_INLINE_LAMBDA {
      x = load(job.in + i);
      if constexpr (kFeedback) x = x + load(job.residual + i);
      chosen = select_(abs(x), position_ + i);
    };
    Group out;
    half(group * kGroupFloats, out.x.low, out.low);
    half(group * kGroupFloats + kLanes, out.x.high, out.high);
    return out;
  }

  // Returns whether all floats are finite.
  static GRADLANE_INLINE bool fits(const Group& group) {
    return mask_bits(is_finite(group.x.low) & is_finite(group.x.high)) == 0xffff;
  }

  // Returns the new residuals, which are never -0.
  GRADLANE_INLINE Left left(const Group& group) const {
    const auto rest = [&](const Floats& x, const Mask& chosen)
                          GRADLANE_INLINE_LAMBDA { return choose(chosen, x - signed_as(x), x) + all(0.0F); };
    return {rest(group.x.low, group.low), rest(group.x.high, group.high)};
  }
  static GRADLANE_INLINE void store_residual(const PlaneJob& job, size_t group, const Left& left) {
    store(left.low, job.residual + group * kGroupFloats);
    store(left.high, job.residual + group * kGroupFloats + kLanes);
  }

  // Handles any group, whose missing floats are 0. `out` gets what is contributed, `left` the new residuals.
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

// ---- Sources of write_planes() (plane_passes.h)

template <class Selection, class Runs>
struct TernaryEncoder {
  PlaneJob job;
  Selection selection;

  GRADLANE_INLINE size_t run(size_t group, PlaneSink& sink, uint8_t* tags) {
    return Runs::encode(selection, job, group, sink, tags);
  }

  [[gnu::noinline]] bool step(size_t group, PlaneSink& sink, uint8_t* tags) {
    alignas(32) float chosen[kGroupFloats], left[kGroupFloats];
    selection.get_any(job, group, chosen, left);
    CodedGroup coded;
    const size_t count = job.count(group);
    if (!put_planes<AnyGroup>(job.params, chosen, count, group, sink, tags, coded)) return false;
    if constexpr (Selection::kFeedback) std::memcpy(group_at(job.residual, group), left, count * sizeof(float));
    return true;
  }
};

template <class Selection, class Runs>
struct TernaryAdder {
  PlaneJob job;
  Selection selection;
  PlaneInput input;

  GRADLANE_INLINE size_t run(size_t group, PlaneSink& sink, uint8_t* tags) {
    return Runs::hop(selection, job, input, group, sink, tags);
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
    if constexpr (Selection::kFeedback) std::memcpy(group_at(job.residual, group), left, count * sizeof(float));
    input = after;
    return true;
  }
};

// ---- Entry points

template <class S, template <class Selection> class Runs>
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
    using Selection = TernarySelection<S, kFeedback>;
    TernaryEncoder<Selection, Runs<Selection>> source{{params, job.in, job.residual, job.floats},
                                                      {params, job.position}};
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
    using Selection = TernarySelection<S, kFeedback>;
    TernaryAdder<Selection, Runs<Selection>> source{
        {params, job.local + first, residual, floats}, {params, job.position + first}, input};
    const EncodeResult written = write_planes(source, floats, least_planes(input, floats), job.out, job.room);
    return {Status::kOk, written.floats, written.bytes};
  }
};

}  // namespace
}  // namespace gradlane
