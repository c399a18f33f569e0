// picked_bits.h - AVX-512 kernels for sparse records; the elements that have a value are a set of bits
//
// The number and the places of these elements are random. A branch on them is mispredicted about half the time. One
// misprediction costs more than all other work on an element. So up to kFew elements there are hardly any branches.
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include <immintrin.h>

#include <array>

#include "compress/codecs/sparse_record.h"

#define GRADLANE_PICKED  // sparse_writer.h then needs no list

namespace gradlane {
namespace {

constexpr size_t kFew = 16;  // most places that can be listed with 16-byte stores
constexpr size_t kGathered = 8;

// The picked elements of a record: a bit for each element of the record, and the values in order. `value` has space at
// its end, because filter() may write kLanes values each time.
struct Picked {
  Picked() {}  // leaves the arrays unset
  size_t count = 0;
  uint64_t words[4];
  alignas(64) float value[kRecordFloats + kLanes];
};

// Calls f(0), ..., f(3), without a loop.
template <class F>
GRADLANE_INLINE void for_words(F f) {
  f(0U), f(1U), f(2U), f(3U);
}

GRADLANE_INLINE size_t count_of(const uint64_t (&words)[4]) {
  size_t count = 0;
  for_words([&](unsigned w) GRADLANE_INLINE_LAMBDA { count += static_cast<size_t>(std::popcount(words[w])); });
  return count;
}

// Writes the places of the set bits. It may write up to 64 bytes after them. If kAreFew is set, there are at most kFew
// places, and it writes at most 2 kFew bytes in all.
template <bool kAreFew>
GRADLANE_INLINE void list_places(const uint64_t (&words)[4], uint8_t* out) {
  alignas(64) static constexpr auto kPlaces = [] {
    std::array<uint8_t, 64> places{};
    for (uint8_t i = 0; i < 64; ++i) places[i] = i;
    return places;
  }();
  const __m512i places = _mm512_load_si512(kPlaces.data());
  for_words([&](unsigned w) GRADLANE_INLINE_LAMBDA {
    const __m512i here = _mm512_add_epi8(places, _mm512_set1_epi8(static_cast<char>(w * 64)));
    const __m512i listed = _mm512_maskz_compress_epi8(words[w], here);
    if constexpr (kAreFew) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_castsi512_si128(listed));
    } else {
      _mm512_storeu_si512(out, listed);
    }
    out += std::popcount(words[w]);
  });
}

// ---- Writing

// Writes the places of the elements as a list, or as a bitmap if that is shorter. Returns the number of bytes.
GRADLANE_INLINE size_t write_places(const Picked& picked, size_t floats, uint8_t* out) {
  const size_t bitmap = bitmap_bytes(floats);
  if (picked.count <= bitmap) {
    uint8_t places[kRecordFloats + 64];
    list_places<false>(picked.words, places);
    out[0] = static_cast<uint8_t>(picked.count);
    std::memcpy(out + 1, places, picked.count);
    return 1 + picked.count;
  }
  out[0] = kBitmap;
  std::memcpy(out + 1, picked.words, bitmap);
  return 1 + bitmap;
}

// Writes the places of at most kFew elements as a list, without its count. It may write 2 kFew bytes.
GRADLANE_INLINE void write_few_places(const Picked& picked, uint8_t* out) { list_places<true>(picked.words, out); }

// ---- Reading

// Sets a bit for each place of a list.
GRADLANE_INLINE void set_places(const uint8_t* place, size_t count, uint64_t (&words)[4]) {
  if (count > 8) [[unlikely]] {
    for (uint64_t& word : words) word = 0;
    for (size_t i = 0; i < count; ++i) words[place[i] / 64] |= uint64_t{1} << place[i] % 64;
    return;
  }
  const auto here = static_cast<__mmask8>((1U << count) - 1);
  const __m512i places = _mm512_mask_cvtepu8_epi64(_mm512_set1_epi64(-1), here, _mm_maskz_loadu_epi8(here, place));
  const __m512i from = _mm512_setr_epi64(0, 64, 128, 192, 0, 64, 128, 192), one = _mm512_set1_epi64(1);
  // Handles two places, each in four words. A shift by 64 or more, or by a negative number, gives 0.
  const auto two = [&](int64_t k) GRADLANE_INLINE_LAMBDA {
    const __m512i which = _mm512_setr_epi64(k, k, k, k, k + 1, k + 1, k + 1, k + 1);
    return _mm512_sllv_epi64(one, _mm512_sub_epi64(_mm512_permutexvar_epi64(which, places), from));
  };
  const __m512i bits = (two(0) | two(2)) | (two(4) | two(6));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(words),
                      _mm512_castsi512_si256(bits) | _mm512_extracti64x4_epi64(bits, 1));
}

// Reads the places and values of a valid record.
GRADLANE_INLINE void unpack(const CodecParams& params, const SparseRecord& record, Picked& picked) {
  picked.count = record.count;
  if (record.bitmap) [[unlikely]] {
    for (uint64_t& word : picked.words) word = 0;
    const uint8_t* const end = record.values - (params.arguments.value_bits != 0 ? 1 : 0);  // without the width byte
    std::memcpy(picked.words, record.places, static_cast<size_t>(end - record.places));
  } else {
    set_places(record.places, record.count, picked.words);
  }
  if (record.count <= kLanes && record.width == kWholeFloat) [[likely]]
    return store(load_lanes<float>(record.values, record.count), picked.value);
  for (size_t i = 0; i < record.count; ++i) picked.value[i] = value_of(params, record, i);
}

// ---- Adding

[[gnu::noinline]] void drop_zeros(Picked& sum) {
  size_t count = 0, i = 0;
  for (uint64_t& word : sum.words) {
    for (uint64_t bits = word; bits != 0; bits &= bits - 1) {
      const float value = sum.value[i++];
      sum.value[count] = value;
      count += value != 0 ? 1 : 0;
      if (value == 0) word ^= bits & -bits;
    }
  }
  sum.count = count;
}

// A reader of a set's values. It puts them at the lanes of the sum's elements, sixteen lanes at a time.
struct Spread {
  const float* from;

  // Returns the next values at the lanes of the set bits, and 0 elsewhere.
  GRADLANE_INLINE Floats next(uint64_t bits) {
    const Floats v{{{_mm512_maskz_expand_ps(static_cast<__mmask16>(bits), _mm512_loadu_ps(from))}}};
    from += std::popcount(bits & 0xffff);
    return v;
  }
};

// Adds two sets. `sum` gets the elements whose sum is not 0.
GRADLANE_INLINE void merge(const Picked& own, const Picked& other, Picked& sum) {
  Spread mine{own.value}, others{other.value};
  bool zeros = false;
  sum.count = 0;
  // Adds the next `count` elements of the sum, at most 64. Bit i of `of_mine` says whether `own` has element i of
  // these, and `of_others` says it of `other`.
  const auto add_up = [&](uint64_t of_mine, uint64_t of_others, size_t count) GRADLANE_INLINE_LAMBDA {
    for (size_t i = 0; i < count; i += kLanes) {
      const Floats v = mine.next(of_mine >> i) + others.next(of_others >> i);
      store(one_nan(v), sum.value + sum.count + i);
      zeros = zeros | any((!has_value(v)) & first_lanes(count - i));
    }
    sum.count += count;
  };
  const bool few = own.count + other.count < 64;
  uint64_t of_mine = 0, of_others = 0;
  size_t count = 0;
  for_words([&](unsigned w) GRADLANE_INLINE_LAMBDA {
    const uint64_t a = own.words[w], b = other.words[w], all = a | b;
    sum.words[w] = all;
    of_mine |= _pext_u64(a, all) << count;
    of_others |= _pext_u64(b, all) << count;
    count += static_cast<size_t>(std::popcount(all));
    if (few) [[likely]]
      return;
    add_up(of_mine, of_others, count);
    of_mine = of_others = count = 0;
  });
  if (few) [[likely]]
    add_up(of_mine, of_others, count);
  if (zeros) [[unlikely]]
    drop_zeros(sum);
}

// ---- Choosing

// Returns the floats at the first eight places of a list. A shorter list has zeros after its end. (A loop's end would
// be mispredicted, so there is none, and nothing goes through memory.)
GRADLANE_INLINE Floats gather(const float* from, const uint8_t* place) {
  const auto at = [&](size_t i) GRADLANE_INLINE_LAMBDA {
    float f;
    std::memcpy(&f, from + place[i], sizeof f);
    return f;
  };
  return {{{_mm512_zextps256_ps512(_mm256_setr_ps(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)))}}};
}

// Picks the elements of one record that a codec sends.
template <bool kKeep, bool kLattice, class Choice>
struct Picker {
  const Choice& choice;
  const Own& own;
  const float exact;

  // Returns the mask of the elements in [i, i + count) that are sent. With kKeep, the first state array becomes x,
  // which is all that could be sent of each element.
  GRADLANE_INLINE Mask choose_of(size_t i, size_t count) const {
    Floats residual = all(0.0F), second = all(0.0F);
    if constexpr (kKeep) residual = load(own.residual + i, count);
    if constexpr (kKeep && Choice::kSecond) {
      if (own.second != nullptr) second = load(own.second + i, count);
    }
    const Floats x = choice.x(load(own.in + i, count), residual, second);
    const Mask chosen = choice.takes(x, i);
    if constexpr (kKeep) store(x, own.residual + i, count);
    if constexpr (kKeep && Choice::kSecond) {
      if (own.second != nullptr) store(only(!chosen, second), own.second + i, count);
    }
    return chosen;
  }

  GRADLANE_INLINE void choose_all(size_t floats, Picked& picked) const {
    const size_t whole = floats / 64;
    for (size_t w = 0; w < whole; ++w) {
      const auto next = [&](size_t k)
                            GRADLANE_INLINE_LAMBDA { return choose_of(w * 64 + k * kLanes, kLanes).part[0].raw; };
      const auto a = next(0), b = next(1), c = next(2), d = next(3);
      picked.words[w] = _mm512_kunpackd(_mm512_kunpackw(d, c), _mm512_kunpackw(b, a));
    }
    for (size_t w = whole; w < 4; ++w) picked.words[w] = 0;
    uint64_t last = 0;
    each(floats % 64, [&](size_t i, size_t count) GRADLANE_INLINE_LAMBDA {
      last |= uint64_t{mask_bits(choose_of(whole * 64 + i, count))} << i;
    });
    if (whole != 4) picked.words[whole] = last;
    picked.count = count_of(picked.words);
  }

  // Computes the values to send, and stores them in `sent`. `from` has x if states are kept, otherwise inputs. Returns
  // the residuals.
  GRADLANE_INLINE Floats send(const Floats& from, float* sent) const {
    Floats second = all(0.0F);
    const Floats x = kKeep ? from : choice.x(from, all(0.0F), second);
    const Floats rounded = one_nan(kLattice ? to_multiples(x, exact) : x);
    store(rounded, sent);
    return kLattice ? only(is_finite(x), x - rounded) : all(0.0F);
  }

  GRADLANE_INLINE void take(size_t floats, Picked& picked) const {
    if (picked.count == 0) return;
    if (picked.count > kGathered) [[unlikely]]
      return take_many(floats, picked);
    uint8_t place[2 * kFew];
    list_places<true>(picked.words, place);
    const Floats left = send(gather(kKeep ? own.residual : own.in, place), picked.value);
    if constexpr (kKeep) {
      float rest[kLanes];
      store(left, rest);
      for (size_t i = 0; i < picked.count; ++i) std::memcpy(own.residual + place[i], rest + i, sizeof(float));
    }
  }
  GRADLANE_INLINE void take_many(size_t floats, Picked& picked) const {
    float* value = picked.value;
    each(floats, [&](size_t i, size_t count) GRADLANE_INLINE_LAMBDA {
      const Mask chosen = mask_of_bits(picked.words[i / 64] >> i % 64 & 0xffff);
      const Floats from = load((kKeep ? own.residual : own.in) + i, count);
      float sent[kLanes];
      const Floats rest = send(from, sent);
      if constexpr (kKeep) store(choose(chosen, rest, from), own.residual + i, count);
      value += filter(chosen, load(sent), value);
    });
  }
};

// Picks the elements of a record that are sent. The states keep the other elements, and rounding errors.
template <bool kKeep, bool kLattice, class Choice>
GRADLANE_INLINE void pick(const Choice& choice, const Own& own, float exact, size_t floats, Picked& picked) {
  const Picker<kKeep, kLattice, Choice> picker{choice, own, exact};
  picker.choose_all(floats, picked);
  picker.take(floats, picked);
}

}  // namespace
}  // namespace gradlane
