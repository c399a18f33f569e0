// exact_sum.cc - choice of the kernels of correctly rounded sums, and sums in wide whole numbers (any thread)
#include "compress/exact_sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace gradlane {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr int kWordBits = 64;
constexpr int kLeastExponent = -1074;  // of the least denormal double
constexpr int kMantissaBits = 53;

// A whole number of steps of 2^(kLeastExponent - kWordBits), in two's complement. The lowest word has the fractions of
// quotients. Sums of 2^77 doubles fit.
class WideSum {
 public:
  void add(double value) noexcept {
    const auto bits = std::bit_cast<uint64_t>(value);
    const uint64_t field = bits >> (kMantissaBits - 1) & 0x7ff;
    const uint64_t fraction = bits & ((uint64_t{1} << (kMantissaBits - 1)) - 1);
    const uint64_t mantissa = field == 0 ? fraction : fraction | uint64_t{1} << (kMantissaBits - 1);
    const size_t place = kWordBits + (field == 0 ? 0 : field - 1);
    const Wide shifted = static_cast<Wide>(mantissa) << (place % kWordBits);
    const uint64_t parts[] = {static_cast<uint64_t>(shifted), static_cast<uint64_t>(shifted >> kWordBits)};
    const bool negative = std::signbit(value);
    uint64_t carry = 0;
    for (size_t i = place / kWordBits, part = 0; i < words_.size() && (part < 2 || carry != 0); ++i, ++part) {
      const Wide more = static_cast<Wide>(part < 2 ? parts[part] : 0) + carry;
      const Wide sum = negative ? static_cast<Wide>(words_[i]) - more : static_cast<Wide>(words_[i]) + more;
      words_[i] = static_cast<uint64_t>(sum);
      carry = static_cast<uint64_t>(sum >> kWordBits) & 1;
    }
  }

  // Returns the quotient as a double, rounded to nearest even or to odd. The object is then of no further use.
  [[nodiscard]] double divided(unsigned divisor, bool to_odd) noexcept {
    const bool negative = words_.back() >> (kWordBits - 1) != 0;
    if (negative) negate();
    const bool inexact = divide(divisor);
    const double size = rounded(inexact, to_odd);
    return negative ? -size : size;
  }

 private:
  void negate() noexcept {
    uint64_t carry = 1;
    for (uint64_t& word : words_) {
      word = ~word + carry;
      carry = carry != 0 && word == 0 ? 1 : 0;
    }
  }

  // Returns whether a remainder is left.
  bool divide(unsigned divisor) noexcept {
    uint64_t rest = 0;
    for (size_t i = words_.size(); i-- != 0;) {
      const Wide now = static_cast<Wide>(rest) << kWordBits | words_[i];
      words_[i] = static_cast<uint64_t>(now / divisor);
      rest = static_cast<uint64_t>(now % divisor);
    }
    return rest != 0;
  }

  [[nodiscard]] bool bit(int place) const noexcept {
    return (words_[static_cast<size_t>(place / kWordBits)] >> (place % kWordBits) & 1) != 0;
  }

  // Returns the size of a number that is not negative. `inexact`: the true one is larger, by less than a step.
  [[nodiscard]] double rounded(bool inexact, bool to_odd) const noexcept {
    int top = static_cast<int>(words_.size()) * kWordBits - 1;
    while (top >= 0 && !bit(top)) --top;
    const int lowest = std::max(top - (kMantissaBits - 1), kWordBits);
    uint64_t kept = 0;
    for (int place = top; place >= lowest; --place) kept = kept << 1 | (bit(place) ? 1 : 0);
    const bool half = bit(lowest - 1);
    bool below = inexact;
    for (int place = 0; place < lowest - 1 && !below; ++place) below = bit(place);
    if (to_odd) {
      kept |= half || below ? 1 : 0;
    } else if (half && (below || kept % 2 != 0)) {
      ++kept;
    }
    return std::ldexp(static_cast<double>(kept), lowest - kWordBits + kLeastExponent);
  }

  std::array<uint64_t, 35> words_{};
};

// Rounds to 24 bits, to odd, but denormals to nearest: averages of bfloat16 are never that close to a midpoint.
float odd_float(double value) noexcept {
  constexpr uint64_t kBelow = (uint64_t{1} << 29) - 1;
  const auto bits = std::bit_cast<uint64_t>(value);
  return static_cast<float>(std::bit_cast<double>((bits & kBelow) == 0 ? bits : (bits & ~kBelow) | (kBelow + 1)));
}

template <class T>
T element(const void* array, size_t at) noexcept {
  T value;
  std::memcpy(&value, static_cast<const uint8_t*>(array) + at * sizeof value, sizeof value);
  return value;
}

}  // namespace

template <class T>
T exact_sum_of_one(const ExactSumJob<T>& job, size_t at) noexcept {
  constexpr bool kFloat = sizeof(T) == sizeof(float);
  WideSum wide;
  bool any_value = false, up = false, down = false, nan = false, any_plus = false;
  for (unsigned i = 0; i < job.arrays; ++i) {
    const T value = element<T>(job.in[i], at);
    nan |= std::isnan(value);
    if (std::isinf(value)) (value > 0 ? up : down) = true;
    if (!std::isfinite(value)) continue;
    wide.add(static_cast<double>(value));
    any_value |= value != 0;
    any_plus |= !std::signbit(value);
  }
  if (nan || (up && down)) return std::numeric_limits<T>::quiet_NaN();
  if (up || down) return up ? std::numeric_limits<T>::infinity() : -std::numeric_limits<T>::infinity();
  if (!any_value) return any_plus ? T{0} : -T{0};
  const double sum = wide.divided(job.divisor, kFloat);
  return job.to_odd ? static_cast<T>(odd_float(sum)) : static_cast<T>(sum);
}

template float exact_sum_of_one(const ExactSumJob<float>& job, size_t at) noexcept;
template double exact_sum_of_one(const ExactSumJob<double>& job, size_t at) noexcept;

namespace {

template <class T>
void run(Isa isa, const ExactSumJob<T>& job) noexcept {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512:
      return avx512::exact_sum(job);
    case Isa::kAvx2:
      return avx2::exact_sum(job);
#else
    case Isa::kNeon:
      return neon::exact_sum(job);
#endif
    default:
      return scalar::exact_sum(job);
  }
}

}  // namespace

void exact_sum(Isa isa, const ExactSumJob<float>& job) noexcept { run(isa, job); }
void exact_sum(Isa isa, const ExactSumJob<double>& job) noexcept { run(isa, job); }

}  // namespace gradlane
