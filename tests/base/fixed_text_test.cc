// fixed_text_test.cc - tests of texts in a buffer of fixed size
#include "base/fixed_text.h"

#include <gtest/gtest.h>

namespace gradlane::test::fixed_text_test {
namespace {

TEST(FixedText, IsPutTogether) {
  FixedText<64> text = "rank ";
  text.add(17).add(", ToS 0x").add(4, 16, 2).add(std::string_view(" and more", 4));
  EXPECT_EQ(text.view(), "rank 17, ToS 0x04 and");
  EXPECT_STREQ(text.c_str(), "rank 17, ToS 0x04 and");
  EXPECT_EQ(text.size(), 21U);
  text.clear();
  EXPECT_TRUE(text.empty());
  EXPECT_STREQ(text.c_str(), "");
  text.add(~uint64_t{0}).add(" ").add(~uint64_t{0}, 16).add(" ").add(0);
  EXPECT_EQ(text.view(), "18446744073709551615 ffffffffffffffff 0");
}

TEST(FixedText, WhatDoesNotFitIsCutOff) {
  FixedText<8> text = "12345";
  text.add("6789").add("x").add(5);
  EXPECT_EQ(text.view(), "1234567");
  EXPECT_STREQ(text.c_str(), "1234567");
  const FixedText<4> shorter = text.view();
  EXPECT_STREQ(shorter.c_str(), "123");
}

}  // namespace
}  // namespace gradlane::test::fixed_text_test
