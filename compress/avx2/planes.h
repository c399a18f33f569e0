// planes.h - bit planes, 32 floats at a time (included by avx2.cc only)
//
// Adding magic = 1.5 * 2^23 * s rounds a float to the nearest multiple q*s (ties to even) and leaves q in the low bits
// of the sum. That holds for |q| <= 2^22; what lies beyond, Inf and NaN included, gives a number so far from 0 that it
// saturates a 16-bit word, and then no width is found for it.
#pragma once

#include "compress/avx2/vectors.h"
#include "compress/plane_passes.h"

namespace gradlane {
namespace {

// 32 words of 16 bits in order.
struct PlaneWords {
  __m256i low, high;
};

// By width w up to 8: the first w lanes, and for each lane its own number, or w - 1 behind it.
struct PlaneLanes {
  alignas(32) int32_t mask[9][8];
  alignas(32) int32_t fill[9][8];
};
constexpr PlaneLanes kPlaneLanes = [] {
  PlaneLanes lanes{};
  for (int w = 0; w <= 8; ++w) {
    for (int i = 0; i < 8; ++i) {
      lanes.mask[w][i] = i < w ? -1 : 0;
      lanes.fill[w][i] = i < w ? i : w == 0 ? 0 : w - 1;
    }
  }
  return lanes;
}();

GRADLANE_INLINE __m256i lanes_at(const int32_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }

// Bit j of byte i of each 64-bit word becomes bit i of byte j, as transpose_bits() does it.
template <int kShift>
GRADLANE_INLINE __m256i swap_bits(__m256i x, uint64_t mask) {
  const __m256i t = _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi64(x, kShift)),
                                     _mm256_set1_epi64x(static_cast<long long>(mask)));
  return _mm256_xor_si256(x, _mm256_xor_si256(t, _mm256_slli_epi64(t, kShift)));
}
GRADLANE_INLINE __m256i transpose_bits(__m256i x) {
  x = swap_bits<7>(x, 0x00aa00aa00aa00aa);
  x = swap_bits<14>(x, 0x0000cccc0000cccc);
  return swap_bits<28>(x, 0x00000000f0f0f0f0);
}

// Four bytes of each of four 32-bit words of a half.
GRADLANE_INLINE __m256i transpose_bytes(__m256i x) {
  const __m256i order = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,  //
                                         0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm256_shuffle_epi8(x, order);
}

// 32 bytes to eight planes, and back.
GRADLANE_INLINE __m256i planes_of(__m256i bytes) {
  const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  return transpose_bytes(_mm256_permutevar8x32_epi32(transpose_bits(bytes), order));
}
GRADLANE_INLINE __m256i bytes_of_planes(__m256i planes) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return transpose_bits(_mm256_permutevar8x32_epi32(transpose_bytes(planes), order));
}

// Reads `width` planes, 0 to 8, and nothing behind them: those above it are copies of the last one.
GRADLANE_INLINE __m256i load_planes(const uint8_t* at, unsigned width) {
  const __m256i some = _mm256_maskload_epi32(reinterpret_cast<const int*>(at), lanes_at(kPlaneLanes.mask[width]));
  return _mm256_permutevar8x32_epi32(some, lanes_at(kPlaneLanes.fill[width]));
}
GRADLANE_INLINE void store_planes(uint8_t* at, unsigned width, __m256i planes) {
  _mm256_maskstore_epi32(reinterpret_cast<int*>(at), lanes_at(kPlaneLanes.mask[width]), planes);
}

// Words of at most 8 bits as bytes in order, and back.
GRADLANE_INLINE __m256i narrow_words(PlaneWords q) { return in_order(_mm256_packs_epi16(q.low, q.high)); }
GRADLANE_INLINE PlaneWords widen_bytes(__m256i bytes) {
  return {_mm256_cvtepi8_epi16(_mm256_castsi256_si128(bytes)),
          _mm256_cvtepi8_epi16(_mm256_extracti128_si256(bytes, 1))};
}

// Low and high bytes of words.
GRADLANE_INLINE __m256i low_bytes(PlaneWords q) {
  const __m256i low = _mm256_set1_epi16(0xff);
  return in_order(_mm256_packus_epi16(_mm256_and_si256(q.low, low), _mm256_and_si256(q.high, low)));
}
GRADLANE_INLINE __m256i high_bytes(PlaneWords q) {
  return in_order(_mm256_packs_epi16(_mm256_srai_epi16(q.low, 8), _mm256_srai_epi16(q.high, 8)));
}
GRADLANE_INLINE PlaneWords join_bytes(__m256i low, __m256i high) {
  const __m256i a = _mm256_unpacklo_epi8(low, high);
  const __m256i b = _mm256_unpackhi_epi8(low, high);
  return {_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31)};
}

// The words of a group of up to 16 planes.
GRADLANE_INLINE PlaneWords load_words(const uint8_t* at, unsigned width) {
  if (width <= 8) return widen_bytes(bytes_of_planes(load_planes(at, width)));
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  return join_bytes(bytes_of_planes(low), bytes_of_planes(load_planes(at + sizeof low, width - 8)));
}

// Bits of the widest word, 16 where one may be saturated: of -1, 0, 1 it is 1, 0, 2.
GRADLANE_INLINE unsigned width_of(PlaneWords q) {
  const auto zigzag = [](__m256i x) GRADLANE_INLINE_LAMBDA {
    return _mm256_xor_si256(_mm256_slli_epi16(x, 1), _mm256_srai_epi16(x, 15));
  };
  const __m256i all = _mm256_or_si256(zigzag(q.low), zigzag(q.high));
  const __m128i half = _mm_or_si128(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  const __m128i quarter = _mm_or_si128(half, _mm_unpackhi_epi64(half, half));
  auto word = static_cast<uint64_t>(_mm_cvtsi128_si64(quarter));
  word |= word >> 32;
  word |= word >> 16;
  return 32 - static_cast<unsigned>(__builtin_clz(static_cast<unsigned>(word & 0xffff) * 2 + 1)) - 1;
}

class PlaneLattice {
 public:
  explicit PlaneLattice(const CodecParams& p) : magic_(_mm256_set1_ps(p.magic)), step_(_mm256_set1_ps(p.step)) {}

  // Saturated where x is too large.
  GRADLANE_INLINE PlaneWords quantise(Floats x) const { return {words(x.low), words(x.high)}; }

  // x - contribution(x) where nothing is saturated. Added this way round, -0 leaves +0.
  GRADLANE_INLINE Floats error(Floats x) const {
    return map(x, [&](__m256 v) GRADLANE_INLINE_LAMBDA {
      return _mm256_add_ps(v, _mm256_sub_ps(magic_, _mm256_add_ps(v, magic_)));
    });
  }

  GRADLANE_INLINE Floats floats(PlaneWords q) const {
    return {{floats(_mm256_castsi256_si128(q.low)), floats(_mm256_extracti128_si256(q.low, 1))},
            {floats(_mm256_castsi256_si128(q.high)), floats(_mm256_extracti128_si256(q.high, 1))}};
  }

 private:
  GRADLANE_INLINE __m256i steps(__m256 x) const {
    return _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(x, magic_)), _mm256_castps_si256(magic_));
  }
  GRADLANE_INLINE __m256i words(Floats16 x) const { return in_order(_mm256_packs_epi32(steps(x.low), steps(x.high))); }
  GRADLANE_INLINE __m256 floats(__m128i words) const {
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(words)), step_);
  }

  __m256 magic_;
  __m256 step_;
};

// AnyGroup, eight floats at a time.
struct PlaneGroup {
  static GRADLANE_INLINE void round(const CodecParams& p, const float* x, float* out) {
    store_group(out, map(load_group(x), [&](__m256 v) GRADLANE_INLINE_LAMBDA { return rounded(p, v); }));
  }

  static GRADLANE_INLINE void add_to(float* a, const float* b) {
    store_group(a, canonical(add(load_group(a), load_group(b))));
  }

  static GRADLANE_INLINE void subtract(const float* x, const float* rounded, float* out) {
    store_group(out, map(load_group(x), load_group(rounded), [](__m256 v, __m256 r) GRADLANE_INLINE_LAMBDA {
                  // NaN of Inf and NaN, and never -0.
                  const __m256 rest = _mm256_add_ps(_mm256_sub_ps(v, r), _mm256_setzero_ps());
                  return _mm256_and_ps(rest, _mm256_cmp_ps(rest, rest, _CMP_ORD_Q));
                }));
  }

  static GRADLANE_INLINE void code(const CodecParams& p, const float* x, size_t count, CodedGroup& out) {
    const Floats values = load_group(x);
    const Floats all = map(values, [&](__m256 v) GRADLANE_INLINE_LAMBDA { return rounded(p, v); });
    store_group(out.rounded, all);
    // What fits a word, as masks. From 2^23 steps on `all` is far outside, and of NaN nothing is true.
    const __m256 least = _mm256_set1_ps(-32768 * p.step);
    const __m256 most = _mm256_set1_ps(32767 * p.step);
    const Floats fits = map(all, [&](__m256 v) GRADLANE_INLINE_LAMBDA {
      return _mm256_and_ps(_mm256_cmp_ps(v, least, _CMP_GE_OQ), _mm256_cmp_ps(v, most, _CMP_LE_OQ));
    });
    const PlaneLattice lattice(p);
    const PlaneWords q = lattice.quantise(
        map(values, fits, [](__m256 v, __m256 mask) GRADLANE_INLINE_LAMBDA { return _mm256_and_ps(v, mask); }));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.q), q.low);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.q + 16), q.high);
    const auto fitting = static_cast<uint32_t>(_mm256_movemask_ps(fits.low.low)) |
                         static_cast<uint32_t>(_mm256_movemask_ps(fits.low.high)) << 8 |
                         static_cast<uint32_t>(_mm256_movemask_ps(fits.high.low)) << 16 |
                         static_cast<uint32_t>(_mm256_movemask_ps(fits.high.high)) << 24;
    out.escape = {width_of(q), ~fitting};
    out.close(count);
  }

  static GRADLANE_INLINE void put(const CodedGroup& group, uint8_t* at, uint8_t* escapes) {
    const unsigned width = group.escape.width;
    const PlaneWords q = {lanes_at(reinterpret_cast<const int32_t*>(group.q)),
                          lanes_at(reinterpret_cast<const int32_t*>(group.q + 16))};
    store_planes(at, width < 8 ? width : 8, planes_of(low_bytes(q)));
    if (width > 8) store_planes(at + sizeof(__m256i), width - 8, planes_of(high_bytes(q)));
    group.put_raw(at + width * kPlaneBytes, escapes);
  }

  static GRADLANE_INLINE void get(const CodecParams& p, Escape escape, const uint8_t* at, float* x) {
    store_group(x, PlaneLattice(p).floats(load_words(at, escape.width)));
    get_raw(escape, at + escape.width * kPlaneBytes, x);
  }

 private:
  // The nearest multiple of the step; x itself, its bits, from 2^23 steps on.
  static GRADLANE_INLINE __m256 rounded(const CodecParams& p, __m256 x) {
    const __m256 exact = _mm256_set1_ps(p.exact);
    const __m256 r = _mm256_or_ps(exact, _mm256_and_ps(x, _mm256_set1_ps(-0.0F)));
    const __m256 near = _mm256_sub_ps(_mm256_add_ps(x, r), r);
    return _mm256_blendv_ps(x, near, _mm256_cmp_ps(magnitude(x), exact, _CMP_LT_OQ));
  }
};

// See PlanePasses.
struct PlaneKernels {
  using GroupOps = PlaneGroup;

  static constexpr unsigned kByte = 8;
  static constexpr unsigned kWidest = 14;  // so that no sum of two saturates

  // Writes a group; false, and nothing done, if its width is no tag, or there is no room.
  static GRADLANE_INLINE bool put(PlaneWords q, PlaneSink& sink, unsigned& width) {
    width = width_of(q);
    if (width > kWidest) [[unlikely]]
      return false;
    const size_t bytes = width * kPlaneBytes;
    const bool ample = sink.room() >= static_cast<ptrdiff_t>(2 * sizeof(__m256i));
    if (!ample && sink.room() < static_cast<ptrdiff_t>(bytes)) [[unlikely]]
      return false;
    if (width <= kByte) {
      put_byte_planes(sink.at, width, planes_of(narrow_words(q)), ample);
    } else {
      put_byte_planes(sink.at, kByte, planes_of(low_bytes(q)), true);
      put_byte_planes(sink.at + sizeof(__m256i), width - kByte, planes_of(high_bytes(q)), ample);
    }
    sink.at += bytes;
    return true;
  }

  template <bool kFeedback>
  static GRADLANE_INLINE Floats load(const PlaneJob& job, size_t group) {
    const Floats x = load_group(job.in + group * kGroupFloats);
    if constexpr (kFeedback) return add(x, load_group(job.residual + group * kGroupFloats));
    return x;
  }

  template <bool kFeedback>
  static GRADLANE_INLINE void owe(const PlaneJob& job, size_t group, Floats error) {
    if constexpr (kFeedback) store_group(job.residual + group * kGroupFloats, error);
  }

  template <bool kFeedback>
  static GRADLANE_INLINE bool encode_one(const PlaneJob& job, const PlaneLattice& lattice, size_t group,
                                         PlaneSink& sink, unsigned& width) {
    const Floats x = load<kFeedback>(job, group);
    if (!put(lattice.quantise(x), sink, width)) [[unlikely]]
      return false;
    if constexpr (kFeedback) owe<kFeedback>(job, group, lattice.error(x));
    return true;
  }

  template <bool kFeedback>
  static GRADLANE_INLINE size_t encode(const PlaneJob& job, size_t group, PlaneSink& sink, uint8_t* tags) {
    const PlaneLattice lattice(job.params);
    PlaneSink out = sink;
    const size_t full = job.full_groups();
    for (; group < full; group += 2) {
      unsigned first, second;
      if (!encode_one<kFeedback>(job, lattice, group, out, first)) [[unlikely]]
        break;
      tags[group / 2] = static_cast<uint8_t>(first);
      if (group + 1 == full || !encode_one<kFeedback>(job, lattice, group + 1, out, second)) [[unlikely]] {
        ++group;
        break;
      }
      tags[group / 2] = static_cast<uint8_t>(first | second << 4);
    }
    sink = out;
    return group;
  }

  template <bool kFeedback>
  static GRADLANE_INLINE bool add_one(const PlaneJob& job, const PlaneLattice& lattice, PlaneInput& in, size_t group,
                                      PlaneSink& sink, unsigned& width) {
    const unsigned tag = in.tag(group);
    if (tag == kEscape) [[unlikely]]
      return false;
    const Floats x = load<kFeedback>(job, group);
    const PlaneWords local = lattice.quantise(x);
    const PlaneWords block = load_words(in.at, tag);
    // Where `local` is saturated the sum has more than 14 bits.
    if (!put({_mm256_adds_epi16(block.low, local.low), _mm256_adds_epi16(block.high, local.high)}, sink, width))
        [[unlikely]]
      return false;
    in.at += tag * kPlaneBytes;
    if constexpr (kFeedback) owe<kFeedback>(job, group, lattice.error(x));
    return true;
  }

  template <bool kFeedback>
  static GRADLANE_INLINE size_t hop(const PlaneJob& job, PlaneInput& input, size_t group, PlaneSink& sink,
                                    uint8_t* tags) {
    const PlaneLattice lattice(job.params);
    PlaneSink out = sink;
    PlaneInput in = input;
    const size_t full = job.full_groups();
    for (; group < full; group += 2) {
      unsigned first, second;
      if (!add_one<kFeedback>(job, lattice, in, group, out, first)) [[unlikely]]
        break;
      tags[group / 2] = static_cast<uint8_t>(first);
      if (group + 1 == full || !add_one<kFeedback>(job, lattice, in, group + 1, out, second)) [[unlikely]] {
        ++group;
        break;
      }
      tags[group / 2] = static_cast<uint8_t>(first | second << 4);
    }
    sink = out;
    input = in;
    return group;
  }

  template <bool kAdd>
  static GRADLANE_INLINE size_t decode(const CodecParams& params, PlaneInput& input, float* out, size_t group,
                                       size_t groups) {
    const PlaneLattice lattice(params);
    PlaneInput in = input;
    for (; group < groups; ++group) {
      const unsigned tag = in.tag(group);
      if (tag == kEscape) [[unlikely]]
        break;
      float* const at = out + group * kGroupFloats;
      Floats x = lattice.floats(load_words(in.at, tag));
      if constexpr (kAdd) x = canonical(add(load_group(at), x));
      store_group(at, x);
      in.at += tag * kPlaneBytes;
    }
    input = in;
    return group;
  }

 private:
  static GRADLANE_INLINE void put_byte_planes(uint8_t* at, unsigned width, __m256i planes, bool ample) {
    if (ample) [[likely]]
      return _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), planes);
    store_planes(at, width, planes);
  }
};

}  // namespace
}  // namespace gradlane
