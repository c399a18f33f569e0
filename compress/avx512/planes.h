// planes.h - the passes over bit planes: encode, decode, decode_add, hop (included by avx512.cc only)
#pragma once

#include "compress/avx512/plane_group.h"
#include "compress/plane_passes.h"

namespace gradlane {
namespace {

GRADLANE_INLINE bool has_nan(Floats x) { return _mm512_cmp_ps_mask(x.low, x.high, _CMP_UNORD_Q) != 0; }

// See PlanePasses. Two groups at a time as bytes, as long as they are narrow; from the first pair on that is not, one
// at a time as words: to choose anew each time would be mispredicted. One pair is read while the one before it is
// written: that halves what the processor must keep in flight.
struct PlaneKernels {
  using GroupOps = PlaneGroup;

  // Widths in blocks and of sums, such that no sum of two hides that one of them is saturated.
  static constexpr size_t kNarrowIn = 6;        // 127 - 32 has more than 7 bits
  static constexpr size_t kNotNarrow = 0x8080;  // steps of sums of 8 bits, in either half

  // ---- A pair of groups as bytes, a group as words

  // Writes a pair; false, and nothing done, if one is not narrow, or there is no room for a vector.
  static GRADLANE_INLINE bool put_pair(__m512i values, PlaneSink& sink, uint8_t& tags) {
    const __m512i planes = planes_of_values(values);
    const size_t steps = steps_in(planes, 0x0101);
    if ((steps & kNotNarrow) != 0 || !ample(sink)) [[unlikely]]
      return false;
    const size_t first = width_of(steps & 0xff);
    const size_t second = width_of(steps >> 8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sink.at), _mm512_castsi512_si256(planes));
    sink.at += first * kPlaneBytes;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sink.at), _mm512_extracti64x4_epi64(planes, 1));
    sink.at += second * kPlaneBytes;
    tags = static_cast<uint8_t>(first | second << 4);
    return true;
  }

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

  static GRADLANE_INLINE bool ample(const PlaneSink& sink) {
    return sink.room() >= static_cast<ptrdiff_t>(sizeof(__m512i));
  }

  // The tags of two groups that are still to be read.
  struct PairTags {
    size_t tags;  // as they stand in a byte

    [[nodiscard]] GRADLANE_INLINE size_t first() const { return tags & 15; }
    [[nodiscard]] GRADLANE_INLINE size_t second() const { return tags >> 4; }
    [[nodiscard]] GRADLANE_INLINE size_t planes() const { return first() + second(); }
    [[nodiscard]] GRADLANE_INLINE bool within(size_t width) const { return first() <= width && second() <= width; }
  };

  // Their planes, ready to be transposed. Nothing behind them is read.
  static GRADLANE_INLINE __m512i bits_of_pair(const uint8_t* at, PairTags widths) {
    return permute(kBitsOfBytes[widths.tags], load_planes(at, widths.planes()));
  }

  template <bool kFeedback>
  static GRADLANE_INLINE Floats load(const PlaneJob& job, size_t group) {
    const Floats x = load_floats(job.in + group * kGroupFloats);
    if constexpr (kFeedback) return add(x, load_floats(job.residual + group * kGroupFloats));
    return x;
  }

  // A pair or a group that is read, and not yet written.
  struct Begun {
    __m512i values;         // words as VPACKSSDW leaves them, if it is a group
    const uint8_t* behind;  // of a hop: the payload behind it
    Floats error[2];        // with feedback: the new residual
  };

  template <bool kFeedback>
  static GRADLANE_INLINE void owe(const PlaneJob& job, size_t group, Floats error) {
    if constexpr (kFeedback) store_floats(job.residual + group * kGroupFloats, error);
  }

  // ---- What passes do with all of them

  template <bool kFeedback>
  static GRADLANE_INLINE size_t encode(const PlaneJob& from, size_t group, PlaneSink& sink, uint8_t* tags) {
    const PlaneJob job = from;  // copies, so that bytes that are written are none of theirs
    const PlaneLattice lattice(job.params);
    PlaneSink out = sink;
    const size_t full = job.full_groups();
    const auto begin = [&](size_t pair, Begun& begun) GRADLANE_INLINE_LAMBDA {
      const Floats a = load<kFeedback>(job, 2 * pair);
      const Floats b = load<kFeedback>(job, 2 * pair + 1);
      begun.values = lattice.bytes(a, b);
      if constexpr (kFeedback) begun.error[0] = lattice.error(a);
      if constexpr (kFeedback) begun.error[1] = lattice.error(b);
      return true;
    };
    const auto finish = [&](size_t pair, const Begun& begun) GRADLANE_INLINE_LAMBDA {
      if (!put_pair(begun.values, out, tags[pair])) [[unlikely]]
        return false;
      owe<kFeedback>(job, 2 * pair, begun.error[0]);
      owe<kFeedback>(job, 2 * pair + 1, begun.error[1]);
      return true;
    };
    group = 2 * run_pairwise<Begun>(group / 2, full / 2, begin, finish);
    const auto begin_one = [&](size_t g, Begun& begun) GRADLANE_INLINE_LAMBDA {
      const Floats x = load<kFeedback>(job, g);
      begun.values = lattice.words(x);
      if constexpr (kFeedback) begun.error[0] = lattice.error(x);
      return true;
    };
    const auto finish_one = [&](size_t g, const Begun& begun) GRADLANE_INLINE_LAMBDA {
      if (!put(begun.values, out, tags, g)) [[unlikely]]
        return false;
      owe<kFeedback>(job, g, begun.error[0]);
      return true;
    };
    group = run_pairwise<Begun>(group, full, begin_one, finish_one);
    sink = out;
    return group;
  }

  template <bool kFeedback>
  static GRADLANE_INLINE size_t hop(const PlaneJob& from, PlaneInput& input, size_t group, PlaneSink& sink,
                                    uint8_t* tags) {
    const PlaneJob job = from;  // copies, so that bytes that are written are none of theirs
    const PlaneLattice lattice(job.params);
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
      const Floats a = load<kFeedback>(job, 2 * pair);
      const Floats b = load<kFeedback>(job, 2 * pair + 1);
      const __m512i block = values_of_bits(bits_of_pair(next, widths));
      next += widths.planes() * kPlaneBytes;
      begun.values = _mm512_adds_epi8(block, lattice.bytes(a, b));
      begun.behind = next;
      if constexpr (kFeedback) begun.error[0] = lattice.error(a);
      if constexpr (kFeedback) begun.error[1] = lattice.error(b);
      return true;
    };
    const auto finish = [&](size_t pair, const Begun& begun) GRADLANE_INLINE_LAMBDA {
      if (!put_pair(begun.values, out, tags[pair])) [[unlikely]]
        return false;
      in.at = begun.behind;
      owe<kFeedback>(job, 2 * pair, begun.error[0]);
      owe<kFeedback>(job, 2 * pair + 1, begun.error[1]);
      return true;
    };
    group = 2 * run_pairwise<Begun>(group / 2, full / 2, begin, finish);
    next = in.at;
    const auto begin_one = [&](size_t g, Begun& begun) GRADLANE_INLINE_LAMBDA {
      const size_t width = in.tag(g);
      if (width > kWord) [[unlikely]]
        return false;
      fetch_next_page(job.in + g * kGroupFloats);
      const Floats x = load<kFeedback>(job, g);
      const __m512i block = permute(kWordsOfValues, values_of_bits(bits_of_group(next, width)));
      next += width * kPlaneBytes;
      begun.values = _mm512_adds_epi16(block, lattice.words(x));
      begun.behind = next;
      if constexpr (kFeedback) begun.error[0] = lattice.error(x);
      return true;
    };
    const auto finish_one = [&](size_t g, const Begun& begun) GRADLANE_INLINE_LAMBDA {
      if (!put(begun.values, out, tags, g)) [[unlikely]]
        return false;
      in.at = begun.behind;
      owe<kFeedback>(job, g, begun.error[0]);
      return true;
    };
    group = run_pairwise<Begun>(group, full, begin_one, finish_one);
    sink = out;
    input = in;
    return group;
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
