// votes.h - codecs whose contributions are signs, which add up as small integers; included by the kernels of every
// instruction set that are made with the kit
//
// `VoteRule` is the codec:
// - kAbstains: true if a 0 has no vote; false if it votes for a sign drawn at random.
// - kMajorityResult: true if results are the signs of sums; false if they are the sums.
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/codecs/moments.h"
#include "compress/codecs/vote_record.h"
#include "compress/kit/operators.h"

namespace gradlane {
namespace {

struct Majority {
  static constexpr bool kAbstains = false;
  static constexpr bool kMajorityResult = true;
};
struct TernaryMajority {
  static constexpr bool kAbstains = true;
  static constexpr bool kMajorityResult = true;
};
struct ScaledSigns {
  static constexpr bool kAbstains = false;
  static constexpr bool kMajorityResult = false;
};

template <class VoteRule>
struct VotePasses {
  static EncodeResult encode(const CodecParams& params, const EncodeJob& job) noexcept {
    const auto fill = [&](size_t i, size_t count, const Bits& there, VoteRecord& record, float* left) {
      float* const residual = job.residual == nullptr ? nullptr : job.residual + i;
      record.set_votes(vote(params, job.in + i, residual, count, job.position + i, there, left), there);
      return Status::kOk;
    };
    return written(write(job.floats, job.residual, job.out, job.room, fill));
  }

  static HopResult hop(const CodecParams& params, const HopJob& job) noexcept {
    const uint8_t* const end = job.block + job.block_bytes;
    const uint8_t* at = job.block;
    VoteHead head;
    for (size_t i = 0; i < job.first; i += kVoteFloats) {
      const size_t count = smaller(job.floats - i, kVoteFloats);
      if (const Status status = open_votes(at, end, count, head); status != Status::kOk) return {status, 0, 0};
      at += head.bytes(count);
    }
    const size_t floats = job.floats - job.first;
    const uint64_t position = job.position + job.first;
    const float* const local = job.local + job.first;
    float* const residual = job.residual == nullptr ? nullptr : job.residual + job.first;
    const auto fill = [&](size_t i, size_t count, const Bits& there, VoteRecord& record, float* left) {
      if (const Status status = open_votes(at, end, count, record.head); status != Status::kOk) return status;
      record.load(at, count);
      at += record.head.bytes(count);
      if (record.head.exceeds()) [[unlikely]]
        record.cut_off(there);
      const float* const new_residual = residual == nullptr ? nullptr : residual + i;
      record.add(vote(params, local + i, new_residual, count, position + i, there, left), there);
      return Status::kOk;
    };
    const HopResult result = write(floats, residual, job.out, job.room, fill);
    if (result.status == Status::kOk && result.floats == floats && at != end) return {Status::kLong, 0, 0};
    return result;
  }

  static EncodeResult encode_sum(const CodecParams& params, const EncodeJob& job) noexcept {
    const auto fill = [&](size_t i, size_t count, const Bits& there, VoteRecord& record, float*) {
      set_values(params, job.in + i, count, there, record);
      return Status::kOk;
    };
    return written(write(job.floats, nullptr, job.out, job.room, fill));
  }

  static Status validate(const CodecParams&, const uint8_t* block, size_t bytes, size_t floats) noexcept {
    return read(block, bytes, floats, [](size_t, size_t, const uint8_t*, VoteHead) {});
  }

  template <bool kAdd>
  static Status decode(const CodecParams& params, const uint8_t* block, size_t bytes, float* out,
                       size_t floats) noexcept {
    return read(block, bytes, floats, [&](size_t i, size_t count, const uint8_t* at, VoteHead head) {
      head.special ? decode_record<kAdd, true>(params, at, head, out + i, count)
                   : decode_record<kAdd, false>(params, at, head, out + i, count);
    });
  }

  static void finish(const CodecParams& params, float* sums, size_t floats, uint64_t position) noexcept {
    const Random random(params.seed);
    const Floats one = all(params.scale);
    each(floats, [&](size_t i, size_t count) GRADLANE_INLINE_LAMBDA {
      const Floats x = load(sums + i, count);
      Floats sign = signed_as(bits_of(x), one);
      const Mask tie = x == all(0.0F);
      if (mask_bits(tie) != 0) {
        sign = VoteRule::kAbstains ? only(!tie, sign) : choose(tie, signed_as(random.upper(position + i), one), sign);
      }
      store(choose(is_finite(x), sign, x), sums + i, count);
    });
  }

  static constexpr CodecOps ops() {
    CodecOps ops{encode, validate, decode<false>, decode<true>, hop, encode_sum};
    if constexpr (VoteRule::kMajorityResult) {
      ops.finish = finish;
    } else {
      ops.scan = [](const CodecParams&, TensorScan& scan, const ScanJob& job) noexcept { scan_moments(scan, job); };
    }
    return ops;
  }

 private:
  // ---- Blocks

  // Writes a block of as many records as fit. `fill(i, count, there, record, left)` makes the record of `count` floats
  // from i on, and their new residuals in `left`.
  template <class Fill>
  static GRADLANE_INLINE HopResult write(size_t floats, float* residual, uint8_t* out, size_t room, Fill fill) {
    if (room < votes_max_bytes(floats)) room = smaller(room, kMaxPacket);
    const Bits full = Bits::first(kVoteFloats);
    VoteRecord record;
    float left[kVoteFloats];
    size_t done = 0, bytes = 0;
    while (done < floats) {
      const size_t count = smaller(floats - done, kVoteFloats);
      const Bits there = count == kVoteFloats ? full : Bits::first(count);
      const Status status = fill(done, count, there, record, left);
      if (status != Status::kOk) return {status, 0, 0};
      const size_t more = record.store(out + bytes, count, room - bytes);
      if (more == 0) break;
      if (residual != nullptr) std::memcpy(residual + done, left, count * sizeof(float));
      bytes += more;
      done += count;
    }
    return {Status::kOk, done, bytes};
  }
  static EncodeResult written(const HopResult& result) { return {result.floats, result.bytes}; }

  // Calls `see(i, count, planes, head)` for each record.
  template <class See>
  static GRADLANE_INLINE Status read(const uint8_t* block, size_t bytes, size_t floats, See see) {
    const uint8_t* const end = block + bytes;
    for (size_t i = 0; i < floats; i += kVoteFloats) {
      const size_t count = smaller(floats - i, kVoteFloats);
      VoteHead head;
      if (const Status status = open_votes(block, end, count, head); status != Status::kOk) return status;
      see(i, count, block + kHeadBytes, head);
      block += head.bytes(count);
      if (count < kVoteFloats) break;
    }
    return block == end ? Status::kOk : Status::kLong;
  }

  // Returns `size` with the sign bits of `words`.
  static GRADLANE_INLINE Floats signed_as(const Words& words, const Floats& size) {
    return floats_of(bits_of(size) | (words & all(0x80000000U)));
  }

  // ---- Contributions

  // Returns the votes for x = in + residual. If `residual` is not null, `left` gets the new residuals.
  static GRADLANE_INLINE Votes vote(const CodecParams& params, const float* in, const float* residual, size_t count,
                                    uint64_t position, const Bits& there, float* left) {
    return residual != nullptr ? vote_with<true>({params, in, residual, count, position, left}, there)
                               : vote_with<false>({params, in, nullptr, count, position, left}, there);
  }

  // The floats of a record.
  struct Contribution {
    const CodecParams& params;
    const float* in;
    const float* residual;
    size_t count;
    uint64_t position;
    float* left;

    template <bool kFeedback>
    [[nodiscard]] GRADLANE_INLINE Floats x(size_t i, size_t lanes) const {
      const Floats x = load(in + i, lanes);
      if constexpr (kFeedback) return x + load(residual + i, lanes);
      return x;
    }
    template <bool kFeedback>
    GRADLANE_INLINE void store_residual(const Floats& x, size_t i, size_t lanes, uint32_t plus) const {
      const Floats scale = all(params.scale);
      const Floats sent = choose(mask_of_bits(plus), scale, all(0.0F) - scale);
      // Adding 0 turns -0 into 0.
      if constexpr (kFeedback) store(only(is_finite(x), x - sent) + all(0.0F), left + i, lanes);
    }
  };

  template <bool kFeedback>
  static GRADLANE_INLINE Votes vote_with(const Contribution& from, const Bits& there) {
    bool plain = true;
    const auto word = [&](size_t i) GRADLANE_INLINE_LAMBDA {
      if (from.count >= i + 64) return plus_word<kFeedback>(from, i, plain);
      return from.count <= i ? uint64_t{0} : last_plus_word<kFeedback>(from, i, plain);
    };
    const Bits plus = Bits::of(word(0), word(64), word(128), word(192));
    if (plain) [[likely]]
      return {plus, there - plus, {Bits::none(), Bits::none()}};
    return vote_any<kFeedback>(from);
  }

  // Returns a bit for each of 64 floats, set if it is above 0. Clears `plain` if one of them is 0, Inf or NaN.
  template <bool kFeedback>
  static GRADLANE_INLINE uint64_t plus_word(const Contribution& from, size_t i, bool& plain) {
    const Floats x[4] = {from.template x<kFeedback>(i, kLanes), from.template x<kFeedback>(i + 16, kLanes),
                         from.template x<kFeedback>(i + 32, kLanes), from.template x<kFeedback>(i + 48, kLanes)};
    const Words odd = larger_word(larger_word(oddity(x[0]), oddity(x[1])), larger_word(oddity(x[2]), oddity(x[3])));
    plain &= mask_bits(odd < all(kOdd)) == 0xffff;
    const Floats zero = all(0.0F);
    const uint32_t plus[4] = {mask_bits(x[0] > zero), mask_bits(x[1] > zero), mask_bits(x[2] > zero),
                              mask_bits(x[3] > zero)};
    if constexpr (kFeedback) {
      for (size_t k = 0; k < 4; ++k) from.template store_residual<kFeedback>(x[k], i + k * kLanes, kLanes, plus[k]);
    }
    return plus[0] | plus[1] << 16 | static_cast<uint64_t>(plus[2] | plus[3] << 16) << 32;
  }

  // Does the work of plus_word() for the last floats of a record, if they are fewer than 64.
  template <bool kFeedback>
  [[gnu::noinline]] static uint64_t last_plus_word(const Contribution& from, size_t i, bool& plain) {
    uint64_t word = 0;
    each(from.count - i, [&](size_t k, size_t lanes) GRADLANE_INLINE_LAMBDA {
      const Floats x = from.template x<kFeedback>(i + k, lanes);
      const uint32_t plus = mask_bits(x > all(0.0F));
      plain &= (mask_bits(oddity(x) < all(kOdd)) | ~uint32_t{0} << lanes) == ~uint32_t{0};
      if constexpr (kFeedback) from.template store_residual<kFeedback>(x, i + k, lanes, plus);
      word |= static_cast<uint64_t>(plus) << k;
    });
    return word;
  }

  // Returns the votes for floats of any kind.
  template <bool kFeedback>
  [[gnu::noinline]] static Votes vote_any(const Contribution& from) {
    BitWords plus_bits, minus_bits, code[kCodePlanes];
    each(from.count, [&](size_t i, size_t lanes) GRADLANE_INLINE_LAMBDA {
      const Floats x = from.template x<kFeedback>(i, lanes);
      uint32_t plus = mask_bits(x > all(0.0F));
      uint32_t some = mask_bits(oddity(x) < all(kOdd));
      if (some != 0xffff) some |= vote_rest(from, x, lanes, i, plus, code);
      plus_bits.put(i, plus & some);
      minus_bits.put(i, some & ~plus);
      if constexpr (kFeedback) from.template store_residual<kFeedback>(x, i, lanes, plus);
    });
    return {Bits::of(plus_bits), Bits::of(minus_bits), {Bits::of(code[0]), Bits::of(code[1])}};
  }

  // oddity() is twice the bits of the magnitude, minus 1: kOdd or more for 0, Inf and NaN, and less for all others.
  static constexpr uint32_t kOdd = 0xfeffffff;
  static GRADLANE_INLINE Words oddity(const Floats& x) { return bits_of(x) + bits_of(x) + all(0xffffffffU); }
  static GRADLANE_INLINE Words larger_word(const Words& a, const Words& b) {
    return lanes_of<uint32_t>([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::Max(x, y); }, a, b);
  }

  // Handles sixteen floats of which some are 0, Inf, NaN or missing. Returns a mask of the zeros that vote, and puts
  // their random signs into `plus`.
  [[gnu::noinline]] static uint32_t vote_rest(const Contribution& from, const Floats& x, size_t lanes, size_t i,
                                              uint32_t& plus, BitWords (&code)[kCodePlanes]) {
    put_codes(x, i, code);
    if constexpr (VoteRule::kAbstains) return 0;
    const auto there = static_cast<uint32_t>((uint64_t{1} << lanes) - 1);
    const uint32_t zeros = mask_bits(x == all(0.0F)) & there;
    const Words random = Random(from.params.own_seed).upper(from.position + i);
    const uint32_t up = mask_bits((random & all(0x80000000U)) == all(0U));
    plus = (plus & ~zeros) | (up & zeros);
    return zeros;
  }

  static void put_codes(const Floats& x, size_t i, BitWords (&code)[kCodePlanes]) {
    const uint32_t nan = mask_bits(!(x == x));
    const uint32_t infinite = mask_bits(abs(x) == all(__builtin_inff()));
    const uint32_t plus = mask_bits(x > all(0.0F));
    code[0].put(i, nan | (infinite & plus));
    code[1].put(i, nan | (infinite & ~plus));
  }

  // ---- Sums and results

  static void set_values(const CodecParams& params, const float* in, size_t count, const Bits& there,
                         VoteRecord& record) {
    const Floats zero = all(0.0F), one = all(1.0F), most = all(static_cast<float>(kMostVotes));
    const Floats steps_per_one = all(1 / params.scale);
    BitWords plus, minus, code[kCodePlanes];
    uint32_t large = 0;  // set if a value is not -1, 0 or 1
    uint32_t c[kVoteFloats];
    each(count, [&](size_t i, size_t lanes) GRADLANE_INLINE_LAMBDA {
      const Floats x = load(in + i, lanes);
      const Mask finite = is_finite(x);
      if (mask_bits(finite) != 0xffff) [[unlikely]]
        put_codes(x, i, code);
      const Floats steps = only(finite, larger(smaller(x * steps_per_one, most), zero - most));
      const Words whole = nearest(steps);
      const Floats rounded = to_floats(whole);
      plus.put(i, mask_bits(rounded > zero));
      minus.put(i, mask_bits(rounded < zero));
      large |= mask_bits(abs(rounded) > one);
      store(whole + all(kMostVotes), c + i);
    });
    const Votes votes{Bits::of(plus), Bits::of(minus), {Bits::of(code[0]), Bits::of(code[1])}};
    if (large == 0) return record.set_votes(votes, there);
    record.be_special(votes);
    BitWords planes[kWidePlanes];
    each(count, [&](size_t i, size_t) GRADLANE_INLINE_LAMBDA {
      const Words words = load_lanes<uint32_t>(c + i);
      for (uint32_t j = 0; j < kWidePlanes; ++j) {
        const Words bit = all(1U << j);
        planes[j].put(i, mask_bits((words & bit) == bit));
      }
    });
    for (size_t j = 0; j < kWidePlanes; ++j) record.plane[j] = Bits::of(planes[j]);
    record.normalize_wide(there - votes.special());
  }

  template <bool kAdd, bool kSpecial>
  static void decode_record(const CodecParams& params, const uint8_t* planes, VoteHead head, float* out, size_t count) {
    const size_t number = head.planes();
    const size_t all_planes = number + (kSpecial ? kCodePlanes : 0);
    uint8_t whole[(VoteRecord::kMostPlanes + kCodePlanes) * kVoteFloats / 8];
    if (count < kVoteFloats) {
      const size_t each_bytes = (count + 7) / 8;
      for (size_t j = 0; j < all_planes; ++j)
        std::memcpy(whole + j * kPlaneStride, planes + j * each_bytes, each_bytes);
      planes = whole;
    }
    const auto bits_at = [planes](size_t j, size_t i) GRADLANE_INLINE_LAMBDA {
      uint16_t bits;
      std::memcpy(&bits, planes + j * kPlaneStride + i / 8, sizeof bits);
      return mask_of_bits(bits);
    };
    const bool exceeds = head.exceeds();
    const Floats most = all(static_cast<float>(kMostVotes) * params.scale);
    const Floats lowest = all(-static_cast<float>(head.range) * params.scale);
    const Floats step = all((head.single ? 1.0F : 2.0F) * params.scale);
    each(count, [&](size_t i, size_t lanes) GRADLANE_INLINE_LAMBDA {
      Floats v = lowest;
      Floats bit = step;
      for (size_t j = 0; j < number; ++j, bit = bit + bit) v = v + only(bits_at(j, i), bit);
      if (exceeds) v = smaller(v, most);
      if constexpr (kSpecial) {
        const Mask low = bits_at(number, i), high = bits_at(number + 1, i);
        const Floats infinite = all(__builtin_inff());
        v = choose(low, infinite, choose(high, all(0.0F) - infinite, v));
        v = choose(low & high, floats_of(all(0x7fc00000U)), v);
      }
      if constexpr (kAdd) v = add(load(out + i, lanes), v);
      store(v, out + i, lanes);
    });
  }

  static constexpr size_t kPlaneStride = kVoteFloats / 8;
};

}  // namespace
}  // namespace gradlane
