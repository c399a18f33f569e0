// onebit.h - codec onebit: a bit for each float says whether it is negative, and each chunk has the means of both kinds
//
// (Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014, with chunks instead of its columns.)
#pragma once

#include "compress/codecs/chunks.h"

namespace gradlane {
namespace {

struct OneBit {
  static constexpr size_t kHeads = 2;  // mean of the negative floats, and of the others
  static unsigned bits(const CodecParams&) { return 1; }

  struct Measure {
    GRADLANE_INLINE void see(const Floats& x, size_t) {
      const Mask negative = x < all(0.0F);
      const Floats less = x * all(1.0F / kMaxGranule);  // scaled down, so that sums are finite
      low = low + only(negative, less);
      high = high + only(!negative, less);
      negatives = negatives + only(negative, all(1.0F));
    }
    void heads(const CodecParams&, size_t floats, float* heads) const {
      const float count = total(negatives);
      heads[0] = mean(total(low), count);
      heads[1] = mean(total(high), static_cast<float>(floats) - count);
    }

    Floats low = all(0.0F);
    Floats high = all(0.0F);
    Floats negatives = all(0.0F);
  };

  OneBit(const CodecParams&, const float* heads) : low(all(heads[0])), high(all(heads[1])) {}

  GRADLANE_INLINE Words code(const Floats& x) const { return only(x >= all(0.0F), all(1U)); }
  GRADLANE_INLINE Floats value(const Words& code) const { return choose(code == all(1U), high, low); }

  // The sum may have been rounded up, so the mean is limited to the largest float.
  static float mean(float sum, float count) {
    const float of_all = count == 0 ? 0.0F : sum / count * kMaxGranule;
    return of_all > kLargest ? kLargest : of_all < -kLargest ? -kLargest : of_all;
  }
  static constexpr float kLargest = 0x1.fffffep127F;

  Floats low;
  Floats high;
};

}  // namespace
}  // namespace gradlane
