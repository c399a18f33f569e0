// squares_test.cc - tests of the sum of squares: its value, and its bits, which are the same on every machine
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "client/gradlane.h"

namespace gradlane::test::squares_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Returns integers of 24 bits and a sign, times 2^exponent.
std::vector<float> make_data(size_t count, int exponent, uint32_t state = 1) {
  std::vector<float> data(count);
  for (float& x : data) {
    state = state * 1664525 + 1013904223;
    x = std::ldexp(static_cast<float>(static_cast<int32_t>(state) >> 7), exponent);
  }
  return data;
}

double sum_of(const std::vector<float>& data) { return gradlane_sum_of_squares(data.data(), data.size()); }

long double reference(const std::vector<float>& data) {
  long double sum = 0;
  for (const float x : data) sum += static_cast<long double>(x) * static_cast<long double>(x);
  return sum;
}

TEST(Squares, Value) {
  for (const size_t count : {1U, 2U, 15U, 16U, 17U, 31U, 32U, 33U, 100U, 1000U, 4095U, 100003U}) {
    const auto data = make_data(count, -30);
    const long double expected = reference(data);
    // Each addition rounds by 2^-53 at most, and no more than this many additions depend on each other.
    const long double allowed = expected * std::ldexp(static_cast<long double>(count / 16 + 6), -53);
    EXPECT_NEAR(static_cast<double>(static_cast<long double>(sum_of(data)) - expected), 0, static_cast<double>(allowed))
        << count;
  }
}

TEST(Squares, EveryElementCounts) {
  for (size_t count = 1; count < 70; ++count) {
    for (size_t i = 0; i < count; ++i) {
      std::vector<float> data(count, 0.0F);
      data[i] = -3;
      ASSERT_EQ(sum_of(data), 9.0) << i << " of " << count;
    }
  }
}

TEST(Squares, Nothing) {
  EXPECT_EQ(gradlane_sum_of_squares(nullptr, 0), 0.0);
  EXPECT_EQ(sum_of(std::vector<float>(1000, -0.0F)), 0.0);
}

// The order of additions is part of the interface. These values come from a model of it in Python.
TEST(Squares, Golden) {
  struct Row {
    size_t count;
    int exponent;
    uint64_t bits;
  };
  constexpr Row kRows[] = {
      {1, -30, 0x3f0ca064ad5de200},    {7, -30, 0x3f46e10d270ecfd8},    {16, -30, 0x3f58882425f7d554},
      {100, -60, 0x3bc108522decc6b8},  {1000, -30, 0x3fb497bb2d2d641e}, {4099, -160, 0x2f95309692750000},
      {65536, 80, 0x4dd5471a1459618b},
  };
  for (const Row& row : kRows) {
    EXPECT_EQ(std::bit_cast<uint64_t>(sum_of(make_data(row.count, row.exponent))), row.bits)
        << row.count << " times 2^" << row.exponent;
  }
}

// Slices of tensors begin at multiples of 4 bytes, not of 16.
TEST(Squares, AnyAddress) {
  const auto data = make_data(1003, -30);
  for (size_t offset = 0; offset < 16; ++offset) {
    std::vector<float> shifted(offset, kNan);
    shifted.insert(shifted.end(), data.begin(), data.end());
    shifted.resize(shifted.size() + 16, kNan);
    EXPECT_EQ(gradlane_sum_of_squares(shifted.data() + offset, data.size()), sum_of(data)) << offset;
  }
}

TEST(Squares, NanAndInfinity) {
  for (size_t i = 0; i < 40; ++i) {
    auto data = make_data(40, -30);
    data[i] = i % 2 == 0 ? kInfinity : -kInfinity;
    EXPECT_EQ(sum_of(data), std::numeric_limits<double>::infinity());
    data[(i + 7) % 40] = kNan;
    EXPECT_TRUE(std::isnan(sum_of(data)));
    data[i] = 1;
    EXPECT_TRUE(std::isnan(sum_of(data)));
  }
}

TEST(Squares, SmallestAndLargest) {
  const float denormal = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(sum_of(std::vector<float>(64, denormal)), 64 * std::ldexp(1.0, -298));
  const float largest = std::numeric_limits<float>::max();
  const double square = static_cast<double>(largest) * static_cast<double>(largest);
  EXPECT_EQ(sum_of(std::vector<float>(64, -largest)), 64 * square);
  EXPECT_EQ(sum_of({1, denormal, denormal}), 1.0);
}

}  // namespace
}  // namespace gradlane::test::squares_test
