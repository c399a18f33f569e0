// planes.h - the passes over bit planes: encode, decode, decode_add, hop (included by neon.cc only)
#pragma once

#include "compress/neon/plane_group.h"
#include "compress/plane_passes.h"

namespace gradlane {
namespace {

// Finds an address of the next planes of a block from which kReach bytes can be read. Near the end of a block this is a
// copy. Two groups as bytes, or one as words, have at most kReach bytes.
class PlaneReader {
 public:
  static constexpr size_t kReach = kMostPlanes * kPlaneBytes;

  GRADLANE_INLINE const uint8_t* at(const PlaneInput& input) {
    const auto left = static_cast<size_t>(input.escapes - input.at);
    if (left >= kReach) [[likely]]
      return input.at;
    std::memcpy(spare_, input.at, left);
    return spare_;
  }

 private:
  uint8_t spare_[kReach] = {};  // copy of what is left near the end of a block
};

// The `Kernels` of PlanePasses (compress/plane_passes.h). The kernels handle two groups at a time, as bytes or as
// halves of bytes. If a group is wider, the next kWords groups are handled one at a time, as words. A new choice for
// each group would be mispredicted.
struct PlaneKernels {
  using GroupOps = PlaneGroup;

  static constexpr unsigned kNibble = 4;  // most planes of half bytes
  static constexpr unsigned kByte = 8;    // most planes of bytes
  static constexpr unsigned kNarrow = 7;  // most planes of bytes of which none is saturated
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
    const unsigned first = width_of(bytes.first), second = width_of(bytes.second);
    if (sink.room() < static_cast<ptrdiff_t>(2 * sizeof(Planes)) || !within(kNarrow, first, second)) [[unlikely]]
      return false;
    uint8_t* const behind = sink.at + first * kPlaneBytes;
    if (within(kNibble, first, second)) {
      const Planes planes = planes_of_nibbles(bytes);
      vst1q_u8(sink.at, planes.low);
      vst1q_u8(behind, planes.high);
    } else {
      store_planes(sink.at, planes_of(bytes.first));
      store_planes(behind, planes_of(bytes.second));
    }
    sink.at = behind + second * kPlaneBytes;
    tags = static_cast<uint8_t>(first | second << 4);
    return true;
  }

  static GRADLANE_INLINE bool put(const PlaneWords& q, PlaneSink& sink, uint8_t* tags, size_t group) {
    const unsigned width = width_of(q);
    if (width > kWidest || sink.room() < static_cast<ptrdiff_t>(width * kPlaneBytes)) [[unlikely]]
      return false;
    const bool ample = sink.room() >= static_cast<ptrdiff_t>(2 * sizeof(Planes));
    if (width <= kByte) {
      put_planes_of(half_bytes<false>(q), sink.at, width, ample);
    } else {
      store_planes(sink.at, planes_of(half_bytes<false>(q)));
      put_planes_of(half_bytes<true>(q), sink.at + sizeof(Planes), width - kByte, ample);
    }
    sink.at += width * kPlaneBytes;
    set_plane_tag(tags, group, width);
    return true;
  }

  template <bool kFeedback>
  static GRADLANE_INLINE Group load(const PlaneJob& job, size_t group) {
    const Group x = load_group(job.in + group * kGroupFloats);
    if constexpr (!kFeedback) return x;
    const auto sum = [](const Floats& v, const Floats& w) GRADLANE_INLINE_LAMBDA { return v + w; };
    return map(sum, x, load_group(job.residual + group * kGroupFloats));
  }

  template <bool kFeedback>
  static GRADLANE_INLINE void store_residual(const PlaneJob& job, size_t group, const PlaneLattice& lattice,
                                             const Group& x) {
    if constexpr (kFeedback) store_group(job.residual + group * kGroupFloats, lattice.error(x));
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
      const Group x = load<kFeedback>(job, g), y = load<kFeedback>(job, g + 1);
      if (!put_pair({lattice.bytes(x), lattice.bytes(y)}, out, tags[g / 2])) [[unlikely]]
        return false;
      store_residual<kFeedback>(job, g, lattice, x);
      store_residual<kFeedback>(job, g + 1, lattice, y);
      return true;
    };
    const auto one = [&](size_t g) GRADLANE_INLINE_LAMBDA {
      const Group x = load<kFeedback>(job, g);
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
    PlaneReader reader;
    const auto pair = [&](size_t g) GRADLANE_INLINE_LAMBDA {
      const unsigned both = in.two_tags(g);
      const unsigned first = both & 15, second = both >> 4;
      if (!within(kNarrowIn, first, second)) [[unlikely]]
        return false;
      const BytePair block = load_pair(reader.at(in), first, second);
      const Group x = load<kFeedback>(job, g), y = load<kFeedback>(job, g + 1);
      if (!put_pair({sum(block.first, lattice.bytes(x)), sum(block.second, lattice.bytes(y))}, out, tags[g / 2]))
          [[unlikely]]
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
      const Group x = load<kFeedback>(job, g);
      // If the addend is saturated, the sum has more than 14 bits, and put() refuses it.
      if (!put(sum(load_words(reader.at(in), tag), lattice.words(x)), out, tags, g)) [[unlikely]]
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
    PlaneReader reader;
    const auto put_floats = [out](size_t g, const Group& x) GRADLANE_INLINE_LAMBDA {
      float* const at = out + g * kGroupFloats;
      const auto sum = [](const Floats& v, const Floats& w) GRADLANE_INLINE_LAMBDA { return add(v, w); };
      store_group(at, kAdd ? map(sum, load_group(at), x) : x);
    };
    const auto pair = [&](size_t g) GRADLANE_INLINE_LAMBDA {
      const unsigned both = in.two_tags(g);
      const unsigned first = both & 15, second = both >> 4;
      if (!within(kByte, first, second)) [[unlikely]]
        return false;
      const BytePair bytes = load_pair(reader.at(in), first, second);
      put_floats(g, lattice.floats(bytes.first));
      put_floats(g + 1, lattice.floats(bytes.second));
      in.at += (first + second) * kPlaneBytes;
      return true;
    };
    const auto one = [&](size_t g) GRADLANE_INLINE_LAMBDA {
      const unsigned tag = in.tag(g);
      if (tag == kEscape) [[unlikely]]
        return false;
      put_floats(g, lattice.floats(load_words(reader.at(in), tag)));
      in.at += tag * kPlaneBytes;
      return true;
    };
    group = run(group, groups, pair, one);
    input = in;
    return group;
  }

 private:
  static GRADLANE_INLINE PlaneBytes sum(PlaneBytes a, PlaneBytes b) {
    return {vqaddq_s8(a.low, b.low), vqaddq_s8(a.high, b.high)};
  }
  static GRADLANE_INLINE PlaneWords sum(PlaneWords a, const PlaneWords& b) {
    for (size_t k = 0; k < 4; ++k) a.part[k] = vqaddq_s16(a.part[k], b.part[k]);
    return a;
  }

  // Loads two groups of up to 8 planes.
  static GRADLANE_INLINE BytePair load_pair(const uint8_t* at, unsigned first, unsigned second) {
    if (within(kNibble, first, second)) return bytes_of_nibbles(at, first, second);
    return {bytes_of_planes(at, first), bytes_of_planes(at + first * kPlaneBytes, second)};
  }

  static GRADLANE_INLINE void put_planes_of(PlaneBytes bytes, uint8_t* at, unsigned width, bool ample) {
    if (ample) [[likely]]
      return store_planes(at, planes_of(bytes));
    store_some_planes(at, width, planes_of(bytes));
  }
};

}  // namespace
}  // namespace gradlane
