// exact_sum_test.cc - sums and averages against the definition of rounding, in whole numbers
#include "compress/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "tests/thorough.h"

namespace gradlane {
namespace {

// A sum of doubles times small whole numbers, in digits of 32 bits that carry late. It shares nothing with WideSum.
__extension__ using Wide = __int128;

class Digits {
 public:
  void add(double value, int64_t times) {
    if (value == 0) return;
    int exponent = 0;
    const auto mantissa = static_cast<int64_t>(std::ldexp(std::frexp(value, &exponent), 53));
    const int place = exponent - 53 + kBelow;
    const auto digit = static_cast<size_t>(place / 32);
    const Wide all = static_cast<Wide>(mantissa * times) << (place % 32);
    // Three digits of 32 bits have the lower 96 bits, and the fourth has the rest with its sign.
    for (size_t i = 0; i < 3; ++i) digits_[digit + i] += static_cast<int64_t>(static_cast<uint32_t>(all >> (32 * i)));
    digits_[digit + 3] += static_cast<int64_t>(all >> 96);
    used_ = std::max(used_, digit + 4);
    first_ = std::min(first_, digit);
  }

  // Returns the sign of the sum: -1, 0 or 1. The object is then of no further use.
  int sign() {
    int64_t carry = 0;
    bool zero = true;
    for (size_t i = first_; i < used_; ++i) {
      const int64_t now = digits_[i] + carry;
      zero &= static_cast<uint32_t>(now) == 0;
      carry = now >> 32;
    }
    if (carry < 0) return -1;
    return zero && carry == 0 ? 0 : 1;
  }

 private:
  static constexpr int kBelow = 1200;  // no frexp() of a double has an exponent below -1073
  std::array<int64_t, 76> digits_{};
  size_t used_ = 0;
  size_t first_ = 76;
};

template <class T>
using Word = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

template <class T>
bool is_even(T value) {
  return std::bit_cast<Word<T>>(value) % 2 == 0;
}

template <class T>
T above(T value) {
  return std::nextafter(value, std::numeric_limits<T>::infinity());
}

// Returns the midpoint of the largest number and the one that would follow it, in two summands.
template <class T>
std::array<double, 2> limit() {
  return {static_cast<double>(std::numeric_limits<T>::max()) / 2,
          std::ldexp(1.0, std::numeric_limits<T>::max_exponent - 1)};
}

template <class T>
struct Arrays {
  Arrays(unsigned count, size_t elements) : data(count, std::vector<T>(elements)) {}
  std::vector<std::vector<T>> data;
};

// Returns whether `result` is the sum of element `at`, divided and rounded to nearest even, by the definition: it lies
// between the midpoints around `result`, and it is a midpoint only if `result` is even.
template <class T>
bool rounds_to(const Arrays<T>& arrays, size_t at, unsigned divisor, T result) {
  bool up = false, down = false, nan = false, all_minus_zero = true;
  for (const auto& array : arrays.data) {
    const T value = array[at];
    nan |= std::isnan(value);
    up |= value == std::numeric_limits<T>::infinity();
    down |= value == -std::numeric_limits<T>::infinity();
    all_minus_zero &= value == 0 && std::signbit(value);
  }
  if (nan || (up && down)) {
    return std::bit_cast<Word<T>>(result) == std::bit_cast<Word<T>>(std::numeric_limits<T>::quiet_NaN());
  }
  if (up || down) return result == (up ? std::numeric_limits<T>::infinity() : -std::numeric_limits<T>::infinity());
  if (std::isnan(result)) return false;
  const bool mirrored = std::signbit(result);
  const T size = mirrored ? -result : result;
  const auto p = static_cast<int64_t>(divisor);
  // Returns the sign of the difference of twice the sum and `times` p `value` for each pair.
  const auto compare = [&](std::initializer_list<double> less) {
    Digits digits;
    for (const auto& array : arrays.data) digits.add(static_cast<double>(array[at]), mirrored ? -2 : 2);
    for (const double value : less) digits.add(value, -p);
    return digits.sign();
  };
  const int sign = compare({});
  if (size == 0) {
    if (sign < 0) return false;
    if (mirrored && sign == 0 && !all_minus_zero) return false;
    if (!mirrored && all_minus_zero) return false;
    return compare({static_cast<double>(above(size))}) <= 0;
  }
  if (sign <= 0) return false;
  const auto edge = limit<T>();
  if (std::isinf(size)) {
    return compare({edge[0], edge[1], edge[0], edge[1]}) >= 0;
  }
  const int lower = compare({static_cast<double>(size), static_cast<double>(std::nextafter(size, T{0}))});
  if (lower < 0 || (lower == 0 && !is_even(size))) return false;
  if (size == std::numeric_limits<T>::max()) {
    return compare({edge[0], edge[1], edge[0], edge[1]}) < 0;
  }
  const int upper = compare({static_cast<double>(size), static_cast<double>(above(size))});
  return upper < 0 || (upper == 0 && is_even(size));
}

enum class Inputs : uint8_t { kGaussian, kBits, kCancel, kDenormal, kHuge, kMixed, kTies, kLast = kTies };
constexpr const char* kNames[] = {"gaussian", "bits", "cancel", "denormal", "huge", "mixed", "ties"};

template <class T>
T any_bits(Random& random) {
  T value;
  do {
    value = std::bit_cast<T>(static_cast<Word<T>>(random.next()));
  } while (!std::isfinite(value) && random.next() % 16 != 0);
  return value;
}

// Returns a number of about that exponent, with a random sign.
template <class T>
T of_size(Random& random, int exponent) {
  const auto fraction = static_cast<double>(random.next() >> 11) * 0x1p-53 + 1;
  return static_cast<T>(std::ldexp(random.next() % 2 == 0 ? fraction : -fraction, exponent));
}

template <class T>
void fill(Arrays<T>& arrays, Inputs inputs, Random& random) {
  using Limits = std::numeric_limits<T>;
  const size_t ranks = arrays.data.size();
  for (size_t at = 0; at < arrays.data[0].size(); ++at) {
    const auto set = [&](size_t rank, T value) { arrays.data[rank][at] = value; };
    for (size_t rank = 0; rank < ranks; ++rank) {
      switch (inputs) {
        case Inputs::kGaussian:
          set(rank, of_size<T>(random, -static_cast<int>(random.next() % 8)));
          break;
        case Inputs::kBits:
          set(rank, any_bits<T>(random));
          break;
        case Inputs::kCancel:  // pairs that cancel, and small numbers between them
          set(rank, of_size<T>(random, static_cast<int>(random.next() % 60) - 30));
          if (rank % 2 == 1 && random.next() % 4 != 0) set(rank, -arrays.data[random.next() % rank][at]);
          break;
        case Inputs::kDenormal:
          set(rank, of_size<T>(random, Limits::min_exponent - Limits::digits +
                                           static_cast<int>(random.next() % (Limits::digits + 2))));
          if (random.next() % 8 == 0) set(rank, random.next() % 2 == 0 ? T{0} : -T{0});
          break;
        case Inputs::kHuge:
          set(rank, of_size<T>(random, Limits::max_exponent - 1 - static_cast<int>(random.next() % 3)));
          break;
        case Inputs::kMixed:
          set(rank, random.next() % 3 == 0 ? any_bits<T>(random) : of_size<T>(random, 0));
          break;
        case Inputs::kTies:  // one, half of its last bit, and now and then a number that decides
          set(rank, T{0});
          if (rank == 0) set(rank, of_size<T>(random, 0));
          if (rank == 1) set(rank, std::ldexp(random.next() % 2 == 0 ? T{1} : -T{1}, -Limits::digits));
          if (rank == 2 && random.next() % 2 == 0)
            set(rank, of_size<T>(random, -static_cast<int>(random.next() % 100)));
          break;
      }
    }
    if (inputs == Inputs::kTies) std::swap(arrays.data[0][at], arrays.data[random.next() % ranks][at]);
  }
}

template <class T>
std::vector<T> sum_of(Isa isa, const Arrays<T>& arrays, unsigned divisor, bool to_odd = false) {
  std::vector<const void*> in;
  for (const auto& array : arrays.data) in.push_back(array.data());
  std::vector<T> out(arrays.data[0].size());
  exact_sum(isa, ExactSumJob<T>{in.data(), static_cast<unsigned>(in.size()), divisor, out.data(), out.size(), to_odd});
  return out;
}

std::vector<Isa> isas() {
  std::vector<Isa> usable;
  std::ranges::copy_if(kIsas, std::back_inserter(usable), isa_supported);
  return usable;
}

template <class T>
class ExactSum : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(ExactSum, Types);

// GRADLANE_THOROUGH=1 checks 2 * 10^7 sums, in about 3 minutes.
TYPED_TEST(ExactSum, IsRoundedOnce) {
  constexpr size_t kElements = 251;
  constexpr size_t kInputs = static_cast<size_t>(Inputs::kLast) + 1;
  Random random(1);
  size_t wrong = 0;
  const size_t rounds = thorough() ? 360 : 3;
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t kind = 0; kind < kInputs; ++kind) {
      for (const unsigned ranks : {2U, 3U, 4U, 5U, 8U, 16U, 33U, 64U}) {
        Arrays<TypeParam> arrays(ranks, kElements);
        fill(arrays, static_cast<Inputs>(kind), random);
        for (const unsigned divisor : {1U, ranks}) {
          const std::vector<TypeParam> sums = sum_of(Isa::kScalar, arrays, divisor);
          for (size_t at = 0; at < kElements; ++at) wrong += rounds_to(arrays, at, divisor, sums[at]) ? 0 : 1;
          ASSERT_EQ(wrong, 0) << kNames[kind] << ", " << ranks << " ranks, divisor " << divisor;
          for (const Isa isa : isas()) {
            const std::vector<TypeParam> same = sum_of(isa, arrays, divisor);
            ASSERT_EQ(std::memcmp(same.data(), sums.data(), kElements * sizeof(TypeParam)), 0) << isa_name(isa);
          }
          std::ranges::reverse(arrays.data);
          const std::vector<TypeParam> backwards = sum_of(Isa::kScalar, arrays, divisor);
          ASSERT_EQ(std::memcmp(backwards.data(), sums.data(), kElements * sizeof(TypeParam)), 0);
        }
      }
    }
  }
}

TYPED_TEST(ExactSum, KnowsZerosInfinitiesAndNan) {
  using Limits = std::numeric_limits<TypeParam>;
  constexpr auto kInf = Limits::infinity();
  constexpr auto kMost = Limits::max();
  struct Case {
    std::vector<TypeParam> in;
    TypeParam out;
  };
  const Case cases[] = {
      {{-TypeParam{0}, -TypeParam{0}}, -TypeParam{0}},
      {{-TypeParam{0}, TypeParam{0}}, TypeParam{0}},
      {{1, -1}, TypeParam{0}},
      {{kInf, -kMost}, kInf},
      {{-kInf, kMost}, -kInf},
      {{kInf, -kInf}, Limits::quiet_NaN()},
      {{1, -Limits::signaling_NaN()}, Limits::quiet_NaN()},
      {{kMost, kMost}, kInf},
      {{-kMost, -kMost}, -kInf},
      {{kMost, kMost, -kMost}, kMost},
      {{kMost, kMost, -kMost, -kMost, Limits::denorm_min()}, Limits::denorm_min()},
      {{1, Limits::denorm_min(), -1}, Limits::denorm_min()},
  };
  for (const Case& each : cases) {
    Arrays<TypeParam> arrays(static_cast<unsigned>(each.in.size()), 19);
    for (size_t rank = 0; rank < each.in.size(); ++rank) std::ranges::fill(arrays.data[rank], each.in[rank]);
    for (const Isa isa : isas()) {
      for (const TypeParam sum : sum_of(isa, arrays, 1)) {
        EXPECT_EQ(std::bit_cast<Word<TypeParam>>(sum), std::bit_cast<Word<TypeParam>>(each.out));
      }
    }
  }
}

// Rounding to odd and then to fewer bits is rounding once: to 11 bits here.
TEST(ExactSumToOdd, RoundsOnceInTheEnd) {
  Random random(2);
  for (const unsigned ranks : {2U, 3U, 7U, 64U}) {
    Arrays<float> arrays(ranks, 4096);
    fill(arrays, Inputs::kGaussian, random);
    for (auto& array : arrays.data) {
      for (float& value : array) {  // numbers of 11 bits
        value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & ~uint32_t{0x1fff});
      }
    }
    for (const Isa isa : isas()) {
      const std::vector<float> odd = sum_of(isa, arrays, ranks, true);
      for (size_t at = 0; at < odd.size(); ++at) {
        // These sums fit into a double, and so do their quotients, to 42 bits and more.
        double sum = 0;
        for (const auto& array : arrays.data) sum += static_cast<double>(array[at]);
        const double quotient = sum / ranks;
        const int exponent = quotient == 0 ? 0 : std::ilogb(quotient);
        const auto to_11 = [exponent](double value) { return std::nearbyint(std::ldexp(value, 10 - exponent)); };
        EXPECT_EQ(to_11(static_cast<double>(odd[at])), to_11(quotient));
      }
    }
  }
}

}  // namespace
}  // namespace gradlane
