// planes.h - the passes over bit planes: encode, decode, decode_add, hop (included by avx512.cc only)
#pragma once

#include "compress/avx512/plane_group.h"
#include "compress/avx512/plane_runs.h"
#include "compress/plane_passes.h"

namespace gradlane {
namespace {

GRADLANE_INLINE bool has_nan(Floats x) { return _mm512_cmp_ps_mask(x.low, x.high, _CMP_UNORD_Q) != 0; }

// The `Groups` of PlaneRuns that round floats to the nearest multiple of the step.
template <bool kWithFeedback>
class RoundedGroups : PlaneLattice {
 public:
  static constexpr bool kFeedback = kWithFeedback;
  using Group = Floats;
  using Left = Floats;

  RoundedGroups(const CodecParams& params) : PlaneLattice(params) {}

  GRADLANE_INLINE Floats take(const PlaneJob& job, size_t group) const {
    const Floats x = load_floats(job.in + group * kGroupFloats);
    if constexpr (kFeedback) return add(x, load_floats(job.residual + group * kGroupFloats));
    return x;
  }
  static GRADLANE_INLINE bool fits(Floats) { return true; }
  using PlaneLattice::bytes;
  using PlaneLattice::words;
  GRADLANE_INLINE Floats left(Floats x) const { return error(x); }
  static GRADLANE_INLINE void store_residual(const PlaneJob& job, size_t group, Floats left) {
    store_floats(job.residual + group * kGroupFloats, left);
  }
};

// The `Kernels` of PlanePasses (compress/plane_passes.h).
struct PlaneKernels {
  using GroupOps = PlaneGroup;

  template <bool kFeedback>
  static GRADLANE_INLINE size_t encode(const PlaneJob& job, size_t group, PlaneSink& sink, uint8_t* tags) {
    return PlaneRuns<RoundedGroups<kFeedback>>::encode(job.params, job, group, sink, tags);
  }

  template <bool kFeedback>
  static GRADLANE_INLINE size_t hop(const PlaneJob& job, PlaneInput& input, size_t group, PlaneSink& sink,
                                    uint8_t* tags) {
    return PlaneRuns<RoundedGroups<kFeedback>>::hop(job.params, job, input, group, sink, tags);
  }

  template <bool kAdd>
  static GRADLANE_INLINE size_t decode(const CodecParams& params, PlaneInput& input, float* out, size_t group,
                                       size_t groups) {
    const PlaneLattice lattice(params);
    PlaneInput in = input;
    const auto put_floats = [out](size_t g, Floats x) GRADLANE_INLINE_LAMBDA {
      float* const at = out + g * kGroupFloats;
      if constexpr (kAdd) {
        x = add(load_floats(at), x);
        if (has_nan(x)) [[unlikely]]
          x = canonical(x);
      }
      store_floats(at, x);
    };
    size_t pair = group / 2;
    for (; pair < groups / 2; ++pair) {
      const PairTags widths{in.tags[pair]};
      if (!widths.within(kByte)) [[unlikely]]
        break;
      const __m512i values = values_of_bits<0x80>(bits_of_pair(in.at, widths));
      put_floats(2 * pair, lattice.floats_of_bytes(values, 0));
      put_floats(2 * pair + 1, lattice.floats_of_bytes(values, 1));
      in.at += widths.planes() * kPlaneBytes;
    }
    for (group = 2 * pair; group < groups; ++group) {
      const size_t tag = in.tag(group);
      if (tag > kWord) [[unlikely]]
        break;
      const __m512i values = values_of_bits(bits_of_group(in.at, tag));
      put_floats(group, lattice.floats_of_words(flip_words(values)));
      in.at += tag * kPlaneBytes;
    }
    input = in;
    return group;
  }
};

}  // namespace
}  // namespace gradlane
