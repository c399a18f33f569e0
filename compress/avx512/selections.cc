// selections.cc - functions that choose what ranks contribute to blocks in bit planes, in AVX-512 (any thread)
#include "compress/avx512/plane_runs.h"
#include "compress/codecs/define_selections.h"

namespace gradlane::avx512 {
namespace {

// The `Groups` of PlaneRuns that contribute what a TernarySelection (compress/codecs/ternary.h) chooses.
template <class Selection>
struct ChosenGroups : Selection {
  ChosenGroups(const Selection& selection) : Selection(selection) {}

  GRADLANE_INLINE __m512i words(const TernaryGroup& group) const {
    const __m512i full = packed(group);
    return _mm512_or_si512(_mm512_srai_epi16(full, 15), _mm512_srli_epi16(_mm512_slli_epi16(full, 15), 15));
  }
  GRADLANE_INLINE __m512i bytes(const TernaryGroup& a, const TernaryGroup& b) const {
    // Bit 0 becomes the exclusive or of bits 0 and 7, all others become bit 7. So 127 and -128 become 1 and -1.
    const __m512i unit = _mm512_set1_epi64(static_cast<long long>(0x8180808080808080));
    const __m512i full = permute(kValuesOfBytes, _mm512_packs_epi16(packed(a), packed(b)));
    return _mm512_gf2p8affine_epi64_epi8(full, unit, 0);
  }

 private:
  // Returns saturated words in the order of VPACKSSDW: 32767, 0 or -32768.
  GRADLANE_INLINE __m512i packed(const TernaryGroup& group) const {
    return _mm512_packs_epi32(large(group.x.low, group.low), large(group.x.high, group.high));
  }
  // Returns 2^30 with the sign of x, which saturates a word, and 0 for floats that are not chosen. (-0 is never
  // chosen.)
  GRADLANE_INLINE __m512i large(const Floats& x, const Mask& chosen) const {
    constexpr int kSignOrLarge = 0xec;  // (x & sign_) | large_
    return _mm512_maskz_ternarylogic_epi32(chosen.part[0].raw, _mm512_castps_si512(x.part[0].raw), large_, sign_,
                                           kSignOrLarge);
  }

  __m512i large_ = _mm512_set1_epi32(0x40000000);
  __m512i sign_ = _mm512_set1_epi32(static_cast<int>(0x80000000));
};

// Contributions without a block are encoded by TernaryRuns: it computes the planes directly, which is less work than by
// way of bytes.
template <class Selection>
struct ChosenRuns : PlaneRuns<ChosenGroups<Selection>> {
  static constexpr auto encode = TernaryRuns<Selection>::encode;
};

}  // namespace

GRADLANE_DEFINE_SELECTIONS(ChosenRuns)

}  // namespace gradlane::avx512
