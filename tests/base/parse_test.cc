// parse_test.cc - tests of parsing numbers: accepted texts and refused ones
#include "base/parse.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gradlane::test::parse_test {
namespace {

constexpr const char* kNoNumbers[] = {"", " ", "x", "-1", "+1", " 1", "1 ", "1x", "1.0", "18446744073709551616"};

TEST(Parse, Decimal) {
  EXPECT_EQ(parse_decimal("0"), 0U);
  EXPECT_EQ(parse_decimal("007"), 7U);
  EXPECT_EQ(parse_decimal("18446744073709551615"), ~uint64_t{0});
  for (const char* const text : kNoNumbers) EXPECT_EQ(parse_decimal(text), std::nullopt) << text;
  EXPECT_EQ(parse_decimal("0x10"), std::nullopt);
  EXPECT_EQ(parse_decimal("9", 10, 20), std::nullopt);
  EXPECT_EQ(parse_decimal("10", 10, 20), 10U);
  EXPECT_EQ(parse_decimal("20", 10, 20), 20U);
  EXPECT_EQ(parse_decimal("21", 10, 20), std::nullopt);
}

TEST(Parse, WholeAndHex) {
  EXPECT_EQ(parse_whole("255"), 255U);
  EXPECT_EQ(parse_whole("0xff"), 255U);
  EXPECT_EQ(parse_whole("0xFF"), 255U);
  EXPECT_EQ(parse_hex("ff"), 255U);
  EXPECT_EQ(parse_whole("0xffffffffffffffff"), ~uint64_t{0});
  for (const char* const text : kNoNumbers) EXPECT_EQ(parse_whole(text), std::nullopt) << text;
  for (const char* const text : {"0x", "0x10000000000000000", "0x-1", "0xg", "0x1 ", "ff"}) {
    EXPECT_EQ(parse_whole(text), std::nullopt) << text;
  }
}

TEST(Parse, Real) {
  EXPECT_EQ(parse_real("2", 0, 10), 2.0);
  EXPECT_EQ(parse_real("0.5", 0, 10), 0.5);
  EXPECT_EQ(parse_real("1e-3", 0, 10), 1e-3);
  EXPECT_EQ(parse_real("0", 0, 10), 0.0);
  EXPECT_EQ(parse_real("10", 0, 10), 10.0);
  for (const char* const text : {"", "x", "10.1", "-1", "nan", "inf", "1s", " 1", "1 ", "+1", "1e999"}) {
    EXPECT_EQ(parse_real(text, 0, 10), std::nullopt) << text;
  }
}

TEST(Parse, QuantityOfShortSizes) {
  EXPECT_EQ(parse_quantity("65536", kShortSizes), 65536U);
  EXPECT_EQ(parse_quantity("64K", kShortSizes), 65536U);
  EXPECT_EQ(parse_quantity("10M", kShortSizes), 10485760U);
  EXPECT_EQ(parse_quantity("1G", kShortSizes), 1073741824U);
  EXPECT_EQ(parse_quantity("0K", kShortSizes), 0U);
  for (const char* const text : {"", "K", "64k", "64KiB", "64 K", "64K ", "-1K", "1.5M", "64KK", "0x10K"}) {
    EXPECT_EQ(parse_quantity(text, kShortSizes), std::nullopt) << text;
  }
}

TEST(Parse, QuantityWithinItsRange) {
  EXPECT_EQ(parse_quantity("1K", kShortSizes, 1024, 2048), 1024U);
  EXPECT_EQ(parse_quantity("2K", kShortSizes, 1024, 2048), 2048U);
  EXPECT_EQ(parse_quantity("1023", kShortSizes, 1024, 2048), std::nullopt);
  EXPECT_EQ(parse_quantity("2049", kShortSizes, 1024, 2048), std::nullopt);
  EXPECT_EQ(parse_quantity("3K", kShortSizes, 1024, 2048), std::nullopt);
  // Products that do not fit 64 bits are refused.
  EXPECT_EQ(parse_quantity("17179869183G", kShortSizes), uint64_t{17179869183} << 30);
  EXPECT_EQ(parse_quantity("17179869184G", kShortSizes), std::nullopt);
}

TEST(Parse, TakesTheBeginning) {
  std::string_view text = "12-34,5";
  EXPECT_EQ(take_decimal(text), 12U);
  EXPECT_EQ(text, "-34,5");
  EXPECT_EQ(take_decimal(text), std::nullopt);
  EXPECT_EQ(text, "-34,5");
  text = "2.5gbit";
  EXPECT_EQ(take_real(text, false), 2.5);
  EXPECT_EQ(text, "gbit");
  text = "1e3s";
  EXPECT_EQ(take_real(text, true), 1000.0);
  EXPECT_EQ(text, "s");
  text = "1e3s";
  EXPECT_EQ(take_real(text, false), 1.0);
  EXPECT_EQ(text, "e3s");
  text = "99999999999999999999";
  EXPECT_EQ(take_decimal(text), std::nullopt);
  EXPECT_EQ(text.size(), 20U);
  text = "nan";
  EXPECT_TRUE(std::isnan(take_real(text, true).value_or(0)));
}

}  // namespace
}  // namespace gradlane::test::parse_test
