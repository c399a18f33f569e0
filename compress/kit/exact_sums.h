// exact_sums.h - kernels of correctly rounded sums in two doubles; included by every instruction set
//
// A sum is kept as s + t, two doubles (`sum` and `rest` below). TwoSum (Knuth; Shewchuk, 1997) gives the rounding error
// of each addition, as a double. s + t is the true sum, as long as no addition to t has an error. Where one has, whole
// numbers add instead: exact_sum_of_one(). Sums of gradients in fp32 hardly ever need t at all.
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include <hwy/highway.h>

#include "compress/exact_sum.h"
#include "compress/layout.h"

namespace gradlane {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
class ExactSums {
 public:
  static void run(const ExactSumJob<T>& job) noexcept {
    size_t i = 0;
    for (; i + kLanes <= job.count; i += kLanes) {
      if (kFloat && in_one_double(job, i)) continue;
      in_two_doubles(job, i);
    }
    for (; i < job.count; ++i) put(job, i, exact_sum_of_one(job, i));
  }

 private:
  using D = hn::CappedTag<double, 8>;
  using Doubles = hn::Vec<D>;
  using Bits = hn::RebindToUnsigned<D>;
  static constexpr size_t kLanes = hn::MaxLanes(D());
  static constexpr bool kFloat = sizeof(T) == sizeof(float);

  struct Sum {
    Doubles value;
    Doubles error;
  };

  static GRADLANE_INLINE Sum two_sum(Doubles a, Doubles b) {
    const Doubles value = hn::Add(a, b);
    const Doubles of_b = hn::Sub(value, a);
    const Doubles of_a = hn::Sub(value, of_b);
    return {value, hn::Add(hn::Sub(a, of_a), hn::Sub(b, of_b))};
  }

  static GRADLANE_INLINE Doubles load(const void* array, size_t i) {
    const auto* const at = static_cast<const uint8_t*>(array) + i * sizeof(T);
    if constexpr (kFloat) {
      return hn::PromoteTo(D(), hn::LoadU(hn::Rebind<float, D>(), reinterpret_cast<const float*>(at)));
    } else {
      return hn::LoadU(D(), reinterpret_cast<const double*>(at));
    }
  }

  static GRADLANE_INLINE void store(const ExactSumJob<T>& job, size_t i, Doubles v) {
    auto* const at = static_cast<uint8_t*>(job.out) + i * sizeof(T);
    if constexpr (kFloat) {
      if (job.to_odd) v = odd_24_bits(v);
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
      // DemoteTo() does not round to infinity there, but to the largest number.
      double doubles[kLanes];
      hn::StoreU(v, D(), doubles);
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const auto rounded = static_cast<float>(doubles[lane]);
        std::memcpy(at + lane * sizeof rounded, &rounded, sizeof rounded);
      }
#else
      const hn::Rebind<float, D> floats;
      hn::StoreU(hn::DemoteTo(floats, v), floats, reinterpret_cast<float*>(at));
#endif
    } else {
      hn::StoreU(v, D(), reinterpret_cast<double*>(at));
    }
  }

  static GRADLANE_INLINE void put(const ExactSumJob<T>& job, size_t i, T value) {
    std::memcpy(static_cast<uint8_t*>(job.out) + i * sizeof value, &value, sizeof value);
  }

  static GRADLANE_INLINE bool all_zero(Doubles v) { return hn::AllTrue(D(), hn::Eq(v, hn::Zero(D()))); }

  // Adds where no addition of doubles rounds. Returns false, and writes nothing, if one does, or if a value is not
  // finite. The quotient is rounded twice, to 53 bits and then to 24, which does no harm: if S / p is not a midpoint M
  // of two floats, it differs from M by more than 2^-53 S / p, because S has at most 53 bits, and p M at most 34. So
  // rounding to 53 bits does not reach M.
  static GRADLANE_INLINE bool in_one_double(const ExactSumJob<T>& job, size_t i) {
    Doubles sum = load(job.in[0], i);
    Doubles errors = hn::Zero(D());
    for (unsigned array = 1; array < job.arrays; ++array) {
      const Sum next = two_sum(sum, load(job.in[array], i));
      sum = next.value;
      errors = hn::Or(errors, next.error);
    }
    if (!all_zero(errors)) [[unlikely]]
      return false;
    if (job.divisor != 1) sum = hn::Div(sum, hn::Set(D(), job.divisor));
    store(job, i, sum);
    return true;
  }

  static void in_two_doubles(const ExactSumJob<T>& job, size_t i) {
    Doubles sum = load(job.in[0], i);
    Doubles rest = hn::Zero(D());
    Doubles errors = hn::Zero(D());
    for (unsigned array = 1; array < job.arrays; ++array) {
      const Sum next = two_sum(sum, load(job.in[array], i));
      const Sum more = two_sum(rest, next.error);
      sum = next.value;
      rest = more.value;
      errors = hn::Or(errors, more.error);
    }
    // -0 + 0 is +0: keep the sign of `sum` where nothing is to be added.
    Sum result = two_sum(sum, rest);
    result.value = hn::IfThenElse(hn::Eq(rest, hn::Zero(D())), sum, result.value);
    auto good = hn::Eq(errors, hn::Zero(D()));
    Doubles value = result.value;
    if constexpr (kFloat) {
      value = to_odd(result);
      if (job.divisor != 1) value = hn::Div(value, hn::Set(D(), job.divisor));
    } else {
      if (job.divisor != 1) good = hn::And(good, quotient(result, job.divisor, value));
      // An infinite sum of finite numbers may be finite in the end, and NaN needs its one form.
      good = hn::And(good, hn::Lt(hn::Abs(value), hn::Set(D(), __builtin_inf())));
    }
    store_or_recompute(job, i, good, value);
  }

  // Stores the good lanes, and computes the others from the arrays, of which `out` may be one.
  static void store_or_recompute(const ExactSumJob<T>& job, size_t i, hn::Mask<D> good, Doubles value) {
    if (hn::AllTrue(D(), good)) return store(job, i, value);
    T exact[kLanes];
    uint8_t lanes[8] = {};  // Highway writes eight bytes
    hn::StoreMaskBits(D(), good, lanes);
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if ((lanes[0] >> lane & 1) == 0) exact[lane] = exact_sum_of_one(job, i + lane);
    }
    store(job, i, value);
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if ((lanes[0] >> lane & 1) == 0) put(job, i + lane, exact[lane]);
    }
  }

  // Rounds a sum and its error to 53 bits, to odd: an inexact value gets an odd last bit, towards its error.
  static GRADLANE_INLINE Doubles to_odd(Sum sum) {
    const Bits bits;
    const Doubles zero = hn::Zero(D());
    const auto value = hn::BitCast(bits, sum.value);
    const auto even = hn::Eq(hn::And(value, hn::Set(bits, 1)), hn::Zero(bits));
    const auto inexact = hn::RebindMask(bits, hn::Ne(sum.error, zero));
    const auto grows =
        hn::Eq(hn::BitCast(bits, hn::And(hn::Xor(sum.value, sum.error), hn::SignBit(D()))), hn::Zero(bits));
    const auto next = hn::Add(value, hn::IfThenElse(grows, hn::Set(bits, 1), hn::Set(bits, ~uint64_t{0})));
    return hn::BitCast(D(), hn::IfThenElse(hn::And(inexact, even), next, value));
  }

  // Rounds to 24 bits, to odd.
  static GRADLANE_INLINE Doubles odd_24_bits(Doubles v) {
    const Bits bits;
    const auto below = hn::Set(bits, (uint64_t{1} << 29) - 1);
    const auto value = hn::BitCast(bits, v);
    const auto odd = hn::Or(hn::AndNot(below, value), hn::Set(bits, uint64_t{1} << 29));
    return hn::BitCast(D(), hn::IfThenElse(hn::Eq(hn::And(value, below), hn::Zero(bits)), value, odd));
  }

  struct Quotient {
    Doubles value;  // rounded
    Doubles rest;   // the remainder, exactly
  };
  // `by` is a whole number of at most 9 bits, so the products are exact.
  static GRADLANE_INLINE Quotient divide(Doubles a, Doubles by) {
    const Bits bits;
    const Doubles value = hn::Div(a, by);
    const Doubles upper = hn::BitCast(D(), hn::AndNot(hn::Set(bits, 0x1ff), hn::BitCast(bits, value)));
    const Doubles lower = hn::Sub(value, upper);
    return {value, hn::Sub(hn::Sub(a, hn::Mul(upper, by)), hn::Mul(lower, by))};
  }

  // Divides a sum, and returns in which lanes `value` is the quotient rounded once. The quotient is first.value + more,
  // and `more` is exact, or off by less than 2^-50 of it. If that does not matter for the last bit, all is well (Ziv's
  // test).
  static GRADLANE_INLINE hn::Mask<D> quotient(Sum sum, unsigned divisor, Doubles& value) {
    const Doubles by = hn::Set(D(), divisor);
    const Doubles zero = hn::Zero(D());
    const Quotient first = divide(sum.value, by);
    const Sum rest = two_sum(first.rest, sum.error);
    const Quotient more = divide(rest.value, by);
    const Doubles slack = hn::Mul(hn::Abs(more.value), hn::Set(D(), 0x1p-50));
    const Doubles least = hn::Add(first.value, hn::Sub(more.value, slack));
    const Doubles most = hn::Add(first.value, hn::Add(more.value, slack));
    const auto exact = hn::And(hn::Eq(rest.error, zero), hn::Eq(more.rest, zero));
    const Doubles size = hn::Abs(first.value);
    const auto normal = hn::And(hn::Gt(size, hn::Set(D(), 0x1p-900)), hn::Lt(size, hn::Set(D(), 0x1p1000)));
    const auto is_zero = hn::Eq(sum.value, zero);
    value = hn::IfThenElse(is_zero, sum.value, hn::Add(first.value, more.value));
    return hn::Or(is_zero, hn::And(normal, hn::Or(exact, hn::Eq(least, most))));
  }
};

}  // namespace
}  // namespace gradlane
