// planes.h - the passes over bit planes: encode, decode, decode_add, hop (included by avx2.cc only)
#pragma once

#include "compress/avx2/plane_group.h"
#include "compress/plane_passes.h"

namespace gradlane {
namespace {

// The `Kernels` of PlanePasses (compress/plane_passes.h). The kernels handle two groups at a time, as bytes or as
// halves of bytes. If a group is wider, the next kWords groups are handled one at a time, as words. A new choice for
// each group would be mispredicted.
struct PlaneKernels {
  using GroupOps = PlaneGroup;

  static constexpr unsigned kNibble = 4;  // most planes of half bytes
  static constexpr unsigned kByte = 8;    // most planes of bytes
  // most planes of bytes of which none is saturated
  static constexpr unsigned kNarrow = 7;
  // most planes of a block's group to be added as bytes: a saturated byte plus such a byte needs 8 bits (127 - 32)
  static constexpr unsigned kNarrowIn = 6;
  static constexpr unsigned kWidest = 14;  // most planes of words: a sum with a saturated word has more
  static constexpr size_t kWords = 32;     // groups handled as words before bytes are tried again

  static GRADLANE_INLINE bool within(unsigned width, unsigned first, unsigned second) {
    return first <= width && second <= width;
  }

  // put_pair() writes two groups, put() writes one. They return false and write nothing if a group is too wide or does
  // not fit.
  static GRADLANE_INLINE bool put_pair(BytePair bytes, PlaneSink& sink, uint8_t& tags) {
    if (sink.room() < static_cast<ptrdiff_t>(2 * sizeof(Planes))) [[unlikely]]
      return false;
    unsigned first, second;
    if (are_nibbles(bytes)) {
      const Planes planes = planes_of_nibbles(bytes);
      const NibbleWidths widths = widths_of_nibbles(planes);
      first = widths.first;
      second = widths.second;
      store_planes(sink.at, planes.low);
      store_planes(sink.at + first * kPlaneBytes, planes.high);
    } else {
      const Planes a = planes_of(bytes.first);
      const Planes b = planes_of(bytes.second);
      first = width_of(a);
      second = width_of(b);
      if (!within(kNarrow, first, second)) [[unlikely]]
        return false;
      store_planes(sink.at, a);
      store_planes(sink.at + first * kPlaneBytes, b);
    }
    sink.at += (first + second) * kPlaneBytes;
    tags = static_cast<uint8_t>(first | second << 4);
    return true;
  }

  static GRADLANE_INLINE bool put(PlaneWords q, PlaneSink& sink, uint8_t* tags, size_t group) {
    const unsigned width = width_of(q);
    if (width > kWidest || sink.room() < static_cast<ptrdiff_t>(width * kPlaneBytes)) [[unlikely]]
      return false;
    const bool ample = sink.room() >= static_cast<ptrdiff_t>(2 * sizeof(Planes));
    if (width <= kByte) {
      put_planes_of(narrow_words(q), sink.at, width, ample);
    } else {
      store_planes(sink.at, planes_of(low_bytes(q)));
      put_planes_of(high_bytes(q), sink.at + sizeof(Planes), width - kByte, ample);
    }
    sink.at += width * kPlaneBytes;
    set_plane_tag(tags, group, width);
    return true;
  }

  template <bool kFeedback>
  static GRADLANE_INLINE Floats load(const PlaneJob& job, size_t group) {
    const Floats x = load_split(job.in + group * kGroupFloats);
    if constexpr (kFeedback) return add(x, load_split(job.residual + group * kGroupFloats));
    return x;
  }

  template <bool kFeedback>
  static GRADLANE_INLINE void store_residual(const PlaneJob& job, size_t group, const PlaneLattice& lattice, Floats x) {
    if constexpr (kFeedback) store_split(job.residual + group * kGroupFloats, lattice.error(x));
  }

  // Runs `pair(g)` over pairs of groups in [group, groups). When it returns false, runs `one(g)` over the next kWords
  // groups, and then tries pairs again. Stops when `one` returns false. Returns the group at which it stopped.
  template <class Pair, class One>
  static GRADLANE_INLINE size_t run(size_t group, size_t groups, Pair pair, One one) {
    while (group < groups) {
      while (group + 1 < groups && pair(group)) group += 2;
      for (const size_t end = smaller(groups, group + kWords); group < end; ++group) {
        if (!one(group)) return group;
      }
    }
    return group;
  }

  template <bool kFeedback>
  static GRADLANE_INLINE size_t encode(const PlaneJob& from, size_t group, PlaneSink& sink, uint8_t* tags) {
    const PlaneJob job = from;  // copies, so that the bytes that are written cannot alias them
    const PlaneLattice lattice(job.params);
    PlaneSink out = sink;
    const auto pair = [&](size_t g) GRADLANE_INLINE_LAMBDA {
      const Floats x = load<kFeedback>(job, g);
      const Floats y = load<kFeedback>(job, g + 1);
      if (!put_pair({lattice.bytes(x), lattice.bytes(y)}, out, tags[g / 2])) [[unlikely]]
        return false;
      store_residual<kFeedback>(job, g, lattice, x);
      store_residual<kFeedback>(job, g + 1, lattice, y);
      return true;
    };
    const auto one = [&](size_t g) GRADLANE_INLINE_LAMBDA {
      const Floats x = load<kFeedback>(job, g);
      if (!put(lattice.words(x), out, tags, g)) [[unlikely]]
        return false;
      store_residual<kFeedback>(job, g, lattice, x);
      return true;
    };
    group = run(group, job.full_groups(), pair, one);
    sink = out;
    return group;
  }

  template <bool kFeedback>
  static GRADLANE_INLINE size_t hop(const PlaneJob& from, PlaneInput& input, size_t group, PlaneSink& sink,
                                    uint8_t* tags) {
    const PlaneJob job = from;  // copies, so that the bytes that are written cannot alias them
    const PlaneLattice lattice(job.params);
    PlaneSink out = sink;
    PlaneInput in = input;
    const auto pair = [&](size_t g) GRADLANE_INLINE_LAMBDA {
      const unsigned both = in.two_tags(g);
      const unsigned first = both & 15, second = both >> 4;
      if (!within(kNarrowIn, first, second)) [[unlikely]]
        return false;
      const BytePair block = load_pair(in.at, first, second);
      const Floats x = load<kFeedback>(job, g);
      const Floats y = load<kFeedback>(job, g + 1);
      const BytePair sum = {_mm256_adds_epi8(block.first, lattice.bytes(x)),
                            _mm256_adds_epi8(block.second, lattice.bytes(y))};
      if (!put_pair(sum, out, tags[g / 2])) [[unlikely]]
        return false;
      in.at += (first + second) * kPlaneBytes;
      store_residual<kFeedback>(job, g, lattice, x);
      store_residual<kFeedback>(job, g + 1, lattice, y);
      return true;
    };
    const auto one = [&](size_t g) GRADLANE_INLINE_LAMBDA {
      const unsigned tag = in.tag(g);
      if (tag == kEscape) [[unlikely]]
        return false;
      const Floats x = load<kFeedback>(job, g);
      const PlaneWords local = lattice.words(x);
      const PlaneWords block = load_words(in.at, tag);
      // If `local` is saturated, the sum has more than 14 bits, and put() refuses it.
      const PlaneWords sum = {_mm256_adds_epi16(block.low, local.low), _mm256_adds_epi16(block.high, local.high)};
      if (!put(sum, out, tags, g)) [[unlikely]]
        return false;
      in.at += tag * kPlaneBytes;
      store_residual<kFeedback>(job, g, lattice, x);
      return true;
    };
    group = run(group, job.full_groups(), pair, one);
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
      store_group(at, kAdd ? canonical_if_any(add(load_group(at), x)) : x);
    };
    const auto pair = [&](size_t g) GRADLANE_INLINE_LAMBDA {
      const unsigned both = in.two_tags(g);
      const unsigned first = both & 15, second = both >> 4;
      if (!within(kByte, first, second)) [[unlikely]]
        return false;
      const BytePair bytes = load_pair(in.at, first, second);
      put_floats(g, lattice.floats(bytes.first));
      put_floats(g + 1, lattice.floats(bytes.second));
      in.at += (first + second) * kPlaneBytes;
      return true;
    };
    const auto one = [&](size_t g) GRADLANE_INLINE_LAMBDA {
      const unsigned tag = in.tag(g);
      if (tag == kEscape) [[unlikely]]
        return false;
      put_floats(g, lattice.floats(load_words(in.at, tag)));
      in.at += tag * kPlaneBytes;
      return true;
    };
    group = run(group, groups, pair, one);
    input = in;
    return group;
  }

 private:
  // Loads two groups of up to 8 planes.
  static GRADLANE_INLINE BytePair load_pair(const uint8_t* at, unsigned first, unsigned second) {
    if (within(kNibble, first, second)) return bytes_of_nibbles(at, first, second);
    return {bytes_of_planes(at, first), bytes_of_planes(at + first * kPlaneBytes, second)};
  }

  static GRADLANE_INLINE void put_planes_of(__m256i bytes, uint8_t* at, unsigned width, bool ample) {
    if (ample) [[likely]]
      return store_planes(at, planes_of(bytes));
    store_some_planes(at, width, planes_of(bytes));
  }
};

}  // namespace
}  // namespace gradlane
