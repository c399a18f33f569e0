// plane_values.h - conversion of floats to bit planes and back, 32 at a time (included by neon.cc only)
//
// To round a float to the nearest multiple q*s (ties to even), the code adds magic = 1.5 * 2^23 * s. The low bits of
// the sum are then q. This holds for |q| <= 2^22. Larger values, Inf and NaN give a number so far from 0 that it
// saturates a 16-bit word. No width is found for such a word.
#pragma once

#include <array>
#include <bit>

#include "compress/neon/vectors.h"
#include "compress/planes.h"

namespace gradlane {
namespace {

// 32 words of 16 bits, and of 8 bits, in order.
struct PlaneWords {
  int16x8_t part[4];
};
struct PlaneBytes {
  int8x16_t low, high;
};

// Up to 8 planes.
struct Planes {
  uint8x16_t low, high;
};

// ---- Bits

// Transpose the bits of each 64-bit word: bit j of byte i becomes bit i of byte j, as in transpose_bits() of
// compress/plane_group.h. One step of this is swap_bits(). It exchanges the bits of the mask with those kShift above.
template <int kShift>
GRADLANE_INLINE uint64x2_t swap_bits(uint64x2_t x, uint64_t mask) {
  const uint64x2_t below = vbslq_u64(vdupq_n_u64(mask), vshrq_n_u64(x, kShift), x);
  return vbslq_u64(vdupq_n_u64(mask << kShift), vshlq_n_u64(x, kShift), below);
}
GRADLANE_INLINE uint8x16_t transpose_bits(uint8x16_t bytes) {
  uint64x2_t x = vreinterpretq_u64_u8(bytes);
  x = swap_bits<7>(x, 0x00aa00aa00aa00aa);
  x = swap_bits<14>(x, 0x0000cccc0000cccc);
  return vreinterpretq_u8_u64(swap_bits<28>(x, 0x00000000f0f0f0f0));
}

// Places of bytes to take out of 32. A place of 32 or more gives 0.
struct alignas(16) PlaneOrder {
  uint8_t low[16], high[16];
};
GRADLANE_INLINE Planes in_order(Planes from, const PlaneOrder& order) {
  const uint8x16x2_t both = {{from.low, from.high}};
  return {vqtbl2q_u8(both, vld1q_u8(order.low)), vqtbl2q_u8(both, vld1q_u8(order.high))};
}

constexpr uint8_t kNoByte = 0xff;

// Order in which byte k of plane j is byte j of word k.
constexpr PlaneOrder kToPlanes = [] {
  PlaneOrder order{};
  for (size_t i = 0; i < 32; ++i) {
    (i < 16 ? order.low : order.high)[i % 16] = static_cast<uint8_t>(i % kPlaneBytes * 8 + i / kPlaneBytes);
  }
  return order;
}();

// Returns the opposite order: byte j of word k is byte k of plane `plane[j]`.
constexpr PlaneOrder from_planes(const std::array<int, 8>& plane) {
  PlaneOrder order{};
  for (size_t i = 0; i < 32; ++i) {
    const int from = plane[i % 8];
    uint8_t& at = (i < 16 ? order.low : order.high)[i % 16];
    at = from < 0 ? kNoByte : static_cast<uint8_t>(static_cast<size_t>(from) * kPlaneBytes + i / 8);
  }
  return order;
}
// Returns the plane that serves as plane j of `width` planes. Planes above the width are copies of the last one. If the
// width is 0, it is -1 for none.
constexpr int plane_of(size_t j, size_t width) { return width == 0 ? -1 : static_cast<int>(smaller(j, width - 1)); }

// Orders of one group, by width.
constexpr std::array<PlaneOrder, 9> kByteOrders = [] {
  std::array<PlaneOrder, 9> orders{};
  for (size_t w = 0; w <= 8; ++w) {
    std::array<int, 8> plane{};
    for (size_t j = 0; j < 8; ++j) plane[j] = plane_of(j, w);
    orders[w] = from_planes(plane);
  }
  return orders;
}();

// Orders of two groups of up to four planes, by both widths. The second group is in the upper halves of bytes.
constexpr std::array<std::array<PlaneOrder, 5>, 5> kNibbleOrders = [] {
  std::array<std::array<PlaneOrder, 5>, 5> orders{};
  for (size_t first = 0; first <= 4; ++first) {
    for (size_t second = 0; second <= 4; ++second) {
      std::array<int, 8> plane{};
      for (size_t j = 0; j < 4; ++j) {
        plane[j] = plane_of(j, first);
        plane[j + 4] = second == 0 ? -1 : static_cast<int>(first) + plane_of(j, second);
      }
      orders[first][second] = from_planes(plane);
    }
  }
  return orders;
}();

GRADLANE_INLINE Planes planes_of(Planes bytes) {
  return in_order({transpose_bits(bytes.low), transpose_bits(bytes.high)}, kToPlanes);
}
GRADLANE_INLINE Planes planes_of(PlaneBytes bytes) {
  return planes_of(Planes{vreinterpretq_u8_s8(bytes.low), vreinterpretq_u8_s8(bytes.high)});
}

// Return the bytes of planes. They read 32 bytes.
GRADLANE_INLINE Planes bytes_by(const PlaneOrder& order, const uint8_t* at) {
  const Planes words = in_order({vld1q_u8(at), vld1q_u8(at + 16)}, order);
  return {transpose_bits(words.low), transpose_bits(words.high)};
}
GRADLANE_INLINE PlaneBytes bytes_of_planes(const uint8_t* at, unsigned width) {
  const Planes bytes = bytes_by(kByteOrders[width], at);
  return {vreinterpretq_s8_u8(bytes.low), vreinterpretq_s8_u8(bytes.high)};
}

// Writes all eight planes.
GRADLANE_INLINE void store_planes(uint8_t* at, Planes planes) {
  vst1q_u8(at, planes.low);
  vst1q_u8(at + sizeof planes.low, planes.high);
}

// Writes the first `width` planes.
GRADLANE_INLINE void store_some_planes(uint8_t* at, unsigned width, Planes planes) {
  uint8_t all[sizeof planes];
  store_planes(all, planes);
  std::memcpy(at, all, width * kPlaneBytes);
}

// ---- Two groups of up to 4 bits at once, as halves of bytes

struct BytePair {
  PlaneBytes first, second;
};

// Computes the planes of two groups: `low` has the planes of the first one, `high` those of the second one.
GRADLANE_INLINE Planes planes_of_nibbles(BytePair bytes) {
  return planes_of(
      PlaneBytes{vsliq_n_s8(bytes.first.low, bytes.second.low, 4), vsliq_n_s8(bytes.first.high, bytes.second.high, 4)});
}

// Converts the planes of two groups to bytes. It reads 32 bytes.
GRADLANE_INLINE BytePair bytes_of_nibbles(const uint8_t* at, unsigned first, unsigned second) {
  const Planes both = bytes_by(kNibbleOrders[first][second], at);
  const int8x16_t low = vreinterpretq_s8_u8(both.low), high = vreinterpretq_s8_u8(both.high);
  return {{vshrq_n_s8(vshlq_n_s8(low, 4), 4), vshrq_n_s8(vshlq_n_s8(high, 4), 4)},
          {vshrq_n_s8(low, 4), vshrq_n_s8(high, 4)}};
}

// ---- Words

GRADLANE_INLINE PlaneBytes narrow_words(const PlaneWords& q) {
  return {vqmovn_high_s16(vqmovn_s16(q.part[0]), q.part[1]), vqmovn_high_s16(vqmovn_s16(q.part[2]), q.part[3])};
}

// Split words into their low or high bytes, and join such bytes to words again.
template <bool kHigh>
GRADLANE_INLINE PlaneBytes half_bytes(const PlaneWords& q) {
  const auto half = [](int16x8_t a, int16x8_t b) GRADLANE_INLINE_LAMBDA {
    const int8x16_t first = vreinterpretq_s8_s16(a), second = vreinterpretq_s8_s16(b);
    return kHigh ? vuzp2q_s8(first, second) : vuzp1q_s8(first, second);
  };
  return {half(q.part[0], q.part[1]), half(q.part[2], q.part[3])};
}
GRADLANE_INLINE PlaneWords join_bytes(PlaneBytes low, PlaneBytes high) {
  return {{vreinterpretq_s16_s8(vzip1q_s8(low.low, high.low)), vreinterpretq_s16_s8(vzip2q_s8(low.low, high.low)),
           vreinterpretq_s16_s8(vzip1q_s8(low.high, high.high)), vreinterpretq_s16_s8(vzip2q_s8(low.high, high.high))}};
}

// Returns the words of a group of up to 16 planes. It may read 64 bytes.
GRADLANE_INLINE PlaneWords load_words(const uint8_t* at, unsigned width) {
  if (width <= 8) {
    const PlaneBytes bytes = bytes_of_planes(at, width);
    return {{vmovl_s8(vget_low_s8(bytes.low)), vmovl_high_s8(bytes.low), vmovl_s8(vget_low_s8(bytes.high)),
             vmovl_high_s8(bytes.high)}};
  }
  return join_bytes(bytes_of_planes(at, 8), bytes_of_planes(at + 8 * kPlaneBytes, width - 8));
}

// Return the bits that the widest byte or word needs: 1 for -1, 0 for 0, 2 for 1. The result is 8 or 16 if a byte or
// word may be saturated.
GRADLANE_INLINE unsigned width_of(PlaneBytes q) {
  const auto zigzag = [](int8x16_t x) GRADLANE_INLINE_LAMBDA {
    return vreinterpretq_u8_s8(veorq_s8(vshlq_n_s8(x, 1), vshrq_n_s8(x, 7)));
  };
  return static_cast<unsigned>(std::bit_width(uint32_t{vmaxvq_u8(vmaxq_u8(zigzag(q.low), zigzag(q.high)))}));
}
GRADLANE_INLINE unsigned width_of(const PlaneWords& q) {
  const auto zigzag = [&q](size_t k) GRADLANE_INLINE_LAMBDA {
    return vreinterpretq_u16_s16(veorq_s16(vshlq_n_s16(q.part[k], 1), vshrq_n_s16(q.part[k], 15)));
  };
  const uint16x8_t most = vmaxq_u16(vmaxq_u16(zigzag(0), zigzag(1)), vmaxq_u16(zigzag(2), zigzag(3)));
  return static_cast<unsigned>(std::bit_width(uint32_t{vmaxvq_u16(most)}));
}

class PlaneLattice {
 public:
  explicit PlaneLattice(const CodecParams& p)
      : magic_(p.magic),
        exact_(vreinterpretq_u32_f32(vdupq_n_f32(p.exact))),
        byte_bias_(vdupq_n_f32(p.exact + 0x1p7F * p.step)),
        word_bias_(vdupq_n_f32(p.exact + 0x1p15F * p.step)) {}

  // Return the steps of x as words or as bytes, saturated if they are too large.
  GRADLANE_INLINE PlaneWords words(const Group& x) const {
    return {{words(x.low, 0), words(x.low, 2), words(x.high, 0), words(x.high, 2)}};
  }
  GRADLANE_INLINE PlaneBytes bytes(const Group& x) const { return narrow_words(words(x)); }

  // Returns x - contribution(x), if nothing is saturated. This order of operations gives +0 for -0.
  GRADLANE_INLINE Group error(const Group& x) const {
    return map([m = all(magic_)](const Floats& v) GRADLANE_INLINE_LAMBDA { return v + (m - (v + m)); }, x);
  }

  // Return the floats of words or of bytes. With its sign flipped, a word becomes the lowest bits of a float between
  // 2^23 and 2^24 steps. Then word_bias_ (or byte_bias_) is subtracted. Nothing is rounded.
  GRADLANE_INLINE Group floats(const PlaneWords& q) const {
    const auto flipped = [&q](size_t k) GRADLANE_INLINE_LAMBDA {
      return veorq_u16(vreinterpretq_u16_s16(q.part[k]), vdupq_n_u16(0x8000));
    };
    return {floats(flipped(0), flipped(1), word_bias_), floats(flipped(2), flipped(3), word_bias_)};
  }
  GRADLANE_INLINE Group floats(PlaneBytes q) const { return {floats(q.low), floats(q.high)}; }

 private:
  GRADLANE_INLINE int32x4_t steps(float32x4_t x) const {
    const float32x4_t magic = vdupq_n_f32(magic_);
    return vsubq_s32(vreinterpretq_s32_f32(vaddq_f32(x, magic)), vreinterpretq_s32_f32(magic));
  }
  GRADLANE_INLINE int16x8_t words(const Floats& x, size_t k) const {
    return vqmovn_high_s32(vqmovn_s32(steps(x.part[k].raw)), steps(x.part[k + 1].raw));
  }
  GRADLANE_INLINE Floats floats(int8x16_t bytes) const {
    const uint8x16_t flipped = veorq_u8(vreinterpretq_u8_s8(bytes), vdupq_n_u8(0x80));
    return floats(vmovl_u8(vget_low_u8(flipped)), vmovl_high_u8(flipped), byte_bias_);
  }
  GRADLANE_INLINE Floats floats(uint16x8_t first, uint16x8_t second, float32x4_t bias) const {
    const auto part = [bias](uint32x4_t lanes)
                          GRADLANE_INLINE_LAMBDA { return vsubq_f32(vreinterpretq_f32_u32(lanes), bias); };
    Floats x;
    x.part[0].raw = part(vaddw_u16(exact_, vget_low_u16(first)));
    x.part[1].raw = part(vaddw_high_u16(exact_, first));
    x.part[2].raw = part(vaddw_u16(exact_, vget_low_u16(second)));
    x.part[3].raw = part(vaddw_high_u16(exact_, second));
    return x;
  }

  float magic_;
  uint32x4_t exact_;       // 2^23 * s
  float32x4_t byte_bias_;  // (2^23 + 2^7) * s
  float32x4_t word_bias_;  // (2^23 + 2^15) * s
};

}  // namespace
}  // namespace gradlane
