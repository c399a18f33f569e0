// decode.h - decoding of one group of a tagged block to 32 floats (included by avx2.cc only)
#pragma once

#include "compress/avx2/payload.h"

namespace gradlane {
namespace {

// Returns eight tags, those from bit kFirst on. All lanes of `tags` hold the same 16 tags. Lane i of the result has tag
// i of the eight at its low end.
template <int kFirst>
GRADLANE_INLINE __m256i tags_at(__m256i tags) {
  return _mm256_srlv_epi32(tags, _mm256_setr_epi32(kFirst, kFirst + 2, kFirst + 4, kFirst + 6, kFirst + 8, kFirst + 10,
                                                   kFirst + 12, kFirst + 14));
}

// Decodes eight floats by their tags. Sets `scale` to the value of one unit of each payload.
template <class C, int kFirst>
GRADLANE_INLINE __m256 decode_lanes(const C& codec, __m256i lanes, __m256i tags, __m256& scale) {
  scale = _mm256_permutevar_ps(codec.scales(), tags_at<kFirst>(tags));
  return _mm256_mul_ps(_mm256_cvtepi32_ps(C::count(lanes)), scale);
}

// Decodes a group whose payload is complete, and moves `payload` to the first byte after it.
template <class C>
GRADLANE_INLINE Floats decode_group(const C& codec, Group coded, Payload& payload, Payload::Spare& spare) {
  payload.reach(coded.bytes, spare);
  const uint8_t* at = payload.at;
  const Lanes lanes = get_group(coded.tags, at);
  payload.at += coded.bytes;
  const __m256i low = broadcast_int(coded.tags);
  const __m256i high = broadcast_int(coded.tags + 4);
  __m256 a, b, c, d;
  Floats x = {{decode_lanes<C, 0>(codec, lanes.a, low, a), decode_lanes<C, 16>(codec, lanes.b, low, b)},
              {decode_lanes<C, 0>(codec, lanes.c, high, c), decode_lanes<C, 16>(codec, lanes.d, high, d)}};
  if (coded.has_raw()) [[unlikely]] {
    // The scale of tag 3 is negative, so its sign bit serves as the mask that selects the raw float.
    x.low.low = _mm256_blendv_ps(x.low.low, _mm256_castsi256_ps(lanes.a), a);
    x.low.high = _mm256_blendv_ps(x.low.high, _mm256_castsi256_ps(lanes.b), b);
    x.high.low = _mm256_blendv_ps(x.high.low, _mm256_castsi256_ps(lanes.c), c);
    x.high.high = _mm256_blendv_ps(x.high.high, _mm256_castsi256_ps(lanes.d), d);
  }
  return x;
}

// Decodes a group, and moves `payload` to the first byte after it. It is for groups that probably have raw floats.
// Returns false if the payload is incomplete. Signalling NaNs may become quiet.
template <class C>
GRADLANE_INLINE bool decode_any(const C& codec, const uint8_t* tags, Payload& payload, Payload::Spare& spare,
                                Floats& x) {
  payload.reach(kGroupFloats * sizeof(float), spare);
  const uint8_t* at = payload.at;
  const Lanes lanes = get_group(tags, at);
  const __m256i low = broadcast_int(tags);
  const __m256i high = broadcast_int(tags + 4);
  x = {{codec.decode_any(lanes.a, tags_at<0>(low)), codec.decode_any(lanes.b, tags_at<16>(low))},
       {codec.decode_any(lanes.c, tags_at<0>(high)), codec.decode_any(lanes.d, tags_at<16>(high))}};
  if (at > payload.end) [[unlikely]]
    return false;
  payload.at = at;
  return true;
}

}  // namespace
}  // namespace gradlane
