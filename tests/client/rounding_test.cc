// rounding_test.cc - tests of adding rounded floats: values, sizes, addresses, and what does not fit
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "client/gradlane.h"

namespace gradlane::test::rounding_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Rounding, ToTheNearestEven) {
  const std::vector<float> data = {0.5F, 1.5F, -0.5F, -1.5F, 2.5F, 0.49999997F, -2.51F, 1e-40F, 7.0F};
  const std::vector<int32_t> expected = {0, 2, 0, -2, 2, 0, -3, 0, 7};
  std::vector<int32_t> sums(data.size());
  EXPECT_EQ(gradlane_add_rounded(data.data(), sums.data(), data.size(), 1), 7.0F);
  EXPECT_EQ(sums, expected);
  gradlane_add_rounded(data.data(), sums.data(), data.size(), 1);
  for (size_t i = 0; i < data.size(); ++i) EXPECT_EQ(sums[i], 2 * expected[i]) << data[i];
}

TEST(Rounding, AnySizeAndAddress) {
  for (size_t count = 0; count < 20; ++count) {
    for (size_t offset = 0; offset < 5; ++offset) {
      std::vector<float> data(offset + count + 1, 9.0F);
      std::vector<int32_t> sums(offset + count + 1, 5);
      for (size_t i = 0; i < count; ++i) data[offset + i] = static_cast<float>(i) - 3.25F;
      const float largest = gradlane_add_rounded(data.data() + offset, sums.data() + offset, count, 4);
      float expected = 0;
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(sums[offset + i], 5 + 4 * static_cast<int32_t>(i) - 13);
        expected = std::max(expected, std::abs(data[offset + i]));
      }
      EXPECT_EQ(largest, expected);
      EXPECT_EQ(sums.back(), 5);  // what follows stays as it is
    }
  }
}

TEST(Rounding, LargeIntegers) {
  const float data[] = {-1.0F, 0.99999994F, 1.0F / 3};
  int32_t sums[3] = {};
  gradlane_add_rounded(data, sums, 3, std::ldexp(1.0F, 30));
  EXPECT_EQ(sums[0], -(1 << 30));
  EXPECT_EQ(sums[1], (1 << 30) - 64);
  EXPECT_EQ(sums[2], static_cast<int32_t>(std::ldexp(1.0F / 3, 30)));
}

TEST(Rounding, NotFinite) {
  for (size_t i = 0; i < 11; ++i) {
    std::vector<float> data(11, 1.0F);
    std::vector<int32_t> sums(11);
    data[i] = -kInfinity;
    EXPECT_EQ(gradlane_add_rounded(data.data(), sums.data(), 11, 1), kInfinity);
    data[(i + 5) % 11] = i % 2 == 0 ? kNan : -kNan;
    EXPECT_TRUE(std::isnan(gradlane_add_rounded(data.data(), sums.data(), 11, 1)));
  }
}

}  // namespace
}  // namespace gradlane::test::rounding_test
