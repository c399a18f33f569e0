// plane_runs.h - the shortcuts of encode and hop over bit planes, for full groups without escapes (included by
// AVX-512's translation units)
//
// `Groups` says what floats contribute to a block:
// - `Group`, of which `take(job, group)` makes one, with what feedback owes; `fits(a)`: false if one of it has no
//   steps
// - `bytes(a, b)`, `words(a)`: the steps, saturated where they are too large, as PlaneLattice has them
// - `kFeedback`; with it `left(a)`, a `Left`, is what stays, and `owe(job, group, left)` stores that
#pragma once

#include "compress/avx512/pairwise.h"
#include "compress/avx512/plane_bits.h"

namespace gradlane {
namespace {

// Two groups at a time as bytes, as long as they are narrow; from the first pair on that is not, one at a time as
// words: to choose anew each time would be mispredicted. One pair is read while the one before it is written: that
// halves what the processor must keep in flight.
template <class Groups>
struct PlaneRuns {
  using Group = typename Groups::Group;

  // Writes a group; false, and nothing done, if its width is no tag, or there is no room.
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

  // A pair or a group that is read, and not yet written.
  struct Begun {
    __m512i values;                 // words as VPACKSSDW leaves them, if it is a group
    const uint8_t* behind;          // of a hop: the payload behind it
    typename Groups::Left left[2];  // with feedback: the new residual
  };

  static GRADLANE_INLINE size_t encode(const Groups& of, const PlaneJob& from, size_t group, PlaneSink& sink,
                                       uint8_t* tags) {
    const PlaneJob job = from;  // copies, so that bytes that are written are none of theirs
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
      if constexpr (Groups::kFeedback) groups.owe(job, 2 * pair, begun.left[0]);
      if constexpr (Groups::kFeedback) groups.owe(job, 2 * pair + 1, begun.left[1]);
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
      if constexpr (Groups::kFeedback) groups.owe(job, g, begun.left[0]);
      return true;
    };
    group = run_pairwise<Begun>(group, full, begin_one, finish_one);
    sink = out;
    return group;
  }

  static GRADLANE_INLINE size_t hop(const Groups& of, const PlaneJob& from, PlaneInput& input, size_t group,
                                    PlaneSink& sink, uint8_t* tags) {
    const PlaneJob job = from;  // copies, so that bytes that are written are none of theirs
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
      if constexpr (Groups::kFeedback) groups.owe(job, 2 * pair, begun.left[0]);
      if constexpr (Groups::kFeedback) groups.owe(job, 2 * pair + 1, begun.left[1]);
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
      if constexpr (Groups::kFeedback) groups.owe(job, g, begun.left[0]);
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
