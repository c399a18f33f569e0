// plane_runs.h - shortcuts that encode and hop bit planes of full groups without escapes (included by AVX-512's
// translation units)
//
// `Groups` defines what floats contribute to a block:
// - `Group` is one group. `take(job, group)` loads it, and adds the residuals if there is feedback.
// - `fits(a)` returns false if a float of the group is Inf or NaN, unless bytes() and words() saturate such floats.
// - `bytes(a, b)` and `words(a)` return the steps, saturated if they are too large, in the orders of PlaneLattice.
// - `kFeedback` says whether there is feedback. If so, `left(a)` returns the new residuals, which are a `Left`.
// - `store_residual(job, group, left)` stores these residuals.
#pragma once

#include "compress/avx512/pairwise.h"
#include "compress/avx512/plane_bits.h"

namespace gradlane {
namespace {

// The shortcuts begin with pairs of groups, as bytes. From the first pair that does not fit bytes, they handle single
// groups, as words, to the end: a choice per group would be mispredicted. Both loops read the next pair or group before
// they write the current one. The two parts are independent, so the CPU overlaps them with half as many instructions in
// flight.
template <class Groups>
struct PlaneRuns {
  using Group = typename Groups::Group;

  // Writes a group. Returns false and writes nothing if its width is no valid tag or the group does not fit.
  static GRADLANE_INLINE bool put(__m512i words, PlaneSink& sink, uint8_t* tags, size_t group) {
    const __m512i planes = planes_of_values(permute(kValuesOfWords, words));
    const size_t width = width_of(steps_in(planes, 1));
    if (width > kWord) [[unlikely]]
      return false;
    if (ample(sink)) [[likely]] {
      _mm512_storeu_si512(sink.at, planes);
    } else {
      if (sink.room() < static_cast<ptrdiff_t>(width * kPlaneBytes)) return false;
      _mm512_mask_storeu_epi32(sink.at, first_planes(width), planes);
    }
    sink.at += width * kPlaneBytes;
    set_plane_tag(tags, group, static_cast<unsigned>(width));
    return true;
  }

  // A pair, or one group, that is read but not yet written.
  struct Begun {
    __m512i values;                 // values of a pair; words in the order of VPACKSSDW of one group
    const uint8_t* behind;          // in a hop: the end of its payload in the block
    typename Groups::Left left[2];  // new residuals, if there is feedback
  };

  static GRADLANE_INLINE size_t encode(const Groups& of, const PlaneJob& from, size_t group, PlaneSink& sink,
                                       uint8_t* tags) {
    const PlaneJob job = from;  // copies, so that the bytes that are written cannot alias them
    const Groups groups = of;
    PlaneSink out = sink;
    const size_t full = job.full_groups();
    const auto begin = [&](size_t pair, Begun& begun) GRADLANE_INLINE_LAMBDA {
      const Group a = groups.take(job, 2 * pair);
      const Group b = groups.take(job, 2 * pair + 1);
      if (!groups.fits(a) || !groups.fits(b)) [[unlikely]]
        return false;
      begun.values = groups.bytes(a, b);
      if constexpr (Groups::kFeedback) begun.left[0] = groups.left(a);
      if constexpr (Groups::kFeedback) begun.left[1] = groups.left(b);
      return true;
    };
    const auto finish = [&](size_t pair, const Begun& begun) GRADLANE_INLINE_LAMBDA {
      if (!put_pair(begun.values, out, tags[pair])) [[unlikely]]
        return false;
      if constexpr (Groups::kFeedback) groups.store_residual(job, 2 * pair, begun.left[0]);
      if constexpr (Groups::kFeedback) groups.store_residual(job, 2 * pair + 1, begun.left[1]);
      return true;
    };
    group = 2 * run_pairwise<Begun>(group / 2, full / 2, begin, finish);
    const auto begin_one = [&](size_t g, Begun& begun) GRADLANE_INLINE_LAMBDA {
      const Group x = groups.take(job, g);
      if (!groups.fits(x)) [[unlikely]]
        return false;
      begun.values = groups.words(x);
      if constexpr (Groups::kFeedback) begun.left[0] = groups.left(x);
      return true;
    };
    const auto finish_one = [&](size_t g, const Begun& begun) GRADLANE_INLINE_LAMBDA {
      if (!put(begun.values, out, tags, g)) [[unlikely]]
        return false;
      if constexpr (Groups::kFeedback) groups.store_residual(job, g, begun.left[0]);
      return true;
    };
    group = run_pairwise<Begun>(group, full, begin_one, finish_one);
    sink = out;
    return group;
  }

  static GRADLANE_INLINE size_t hop(const Groups& of, const PlaneJob& from, PlaneInput& input, size_t group,
                                    PlaneSink& sink, uint8_t* tags) {
    const PlaneJob job = from;  // copies, so that the bytes that are written cannot alias them
    const Groups groups = of;
    PlaneSink out = sink;
    PlaneInput in = input;
    const size_t full = job.full_groups();
    const uint8_t* next = in.at;
    const auto begin = [&](size_t pair, Begun& begun) GRADLANE_INLINE_LAMBDA {
      const PairTags widths{in.two_tags(2 * pair)};
      if (!widths.within(kNarrowIn)) [[unlikely]]
        return false;
      fetch_next_page(job.in + 2 * pair * kGroupFloats);
      fetch_next_page(job.in + (2 * pair + 1) * kGroupFloats);
      const Group a = groups.take(job, 2 * pair);
      const Group b = groups.take(job, 2 * pair + 1);
      if (!groups.fits(a) || !groups.fits(b)) [[unlikely]]
        return false;
      const __m512i block = values_of_bits(bits_of_pair(next, widths));
      next += widths.planes() * kPlaneBytes;
      begun.values = _mm512_adds_epi8(block, groups.bytes(a, b));
      begun.behind = next;
      if constexpr (Groups::kFeedback) begun.left[0] = groups.left(a);
      if constexpr (Groups::kFeedback) begun.left[1] = groups.left(b);
      return true;
    };
    const auto finish = [&](size_t pair, const Begun& begun) GRADLANE_INLINE_LAMBDA {
      if (!put_pair(begun.values, out, tags[pair])) [[unlikely]]
        return false;
      in.at = begun.behind;
      if constexpr (Groups::kFeedback) groups.store_residual(job, 2 * pair, begun.left[0]);
      if constexpr (Groups::kFeedback) groups.store_residual(job, 2 * pair + 1, begun.left[1]);
      return true;
    };
    group = 2 * run_pairwise<Begun>(group / 2, full / 2, begin, finish);
    next = in.at;
    const auto begin_one = [&](size_t g, Begun& begun) GRADLANE_INLINE_LAMBDA {
      const size_t width = in.tag(g);
      if (width > kWord) [[unlikely]]
        return false;
      fetch_next_page(job.in + g * kGroupFloats);
      const Group x = groups.take(job, g);
      if (!groups.fits(x)) [[unlikely]]
        return false;
      const __m512i block = permute(kWordsOfValues, values_of_bits(bits_of_group(next, width)));
      next += width * kPlaneBytes;
      begun.values = _mm512_adds_epi16(block, groups.words(x));
      begun.behind = next;
      if constexpr (Groups::kFeedback) begun.left[0] = groups.left(x);
      return true;
    };
    const auto finish_one = [&](size_t g, const Begun& begun) GRADLANE_INLINE_LAMBDA {
      if (!put(begun.values, out, tags, g)) [[unlikely]]
        return false;
      in.at = begun.behind;
      if constexpr (Groups::kFeedback) groups.store_residual(job, g, begun.left[0]);
      return true;
    };
    group = run_pairwise<Begun>(group, full, begin_one, finish_one);
    sink = out;
    input = in;
    return group;
  }
};

}  // namespace
}  // namespace gradlane
