// bounded_json_test.cc - JSON that is read, and JSON that is refused before anything is allocated for it
#include "tools/admin/bounded_json.h"

#include <gtest/gtest.h>

#include <string>

namespace gradlane::test::bounded_json_test {
namespace {

std::string times(size_t count, const std::string& text) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

TEST(BoundedJson, WhatIsReadAndWhatIsNot) {
  EXPECT_EQ(parse_bounded(R"({"a": [1, "b]\"[[[[[[[[[[[[[[[[[[[[[", null]})")["a"].size(), 3U)
      << "brackets of a string";
  for (const char* const text : {"", "{", "{\"a\": 1} 2", "nothing", "\"\xff\"", "[1e999]", "\"a", "\"a\\", "]]]]"}) {
    EXPECT_TRUE(parse_bounded(text).is_null()) << text;
  }
}

TEST(BoundedJson, Depth) {
  const JsonBounds bounds;
  EXPECT_TRUE(parse_bounded(times(bounds.depth, "[") + times(bounds.depth, "]")).is_array());
  EXPECT_FALSE(is_bounded(times(bounds.depth + 1, "[")));
  EXPECT_FALSE(is_bounded(times(bounds.depth + 1, "{\"a\":")));
  EXPECT_TRUE(parse_bounded("[" + times(1000, "[],") + "[]]").is_array()) << "beside each other";
}

TEST(BoundedJson, Values) {
  const JsonBounds bounds{.values = 100};
  EXPECT_TRUE(is_bounded("[" + times(97, "0,") + "0]", bounds));
  EXPECT_FALSE(is_bounded("[" + times(99, "0,") + "0]", bounds));
  EXPECT_FALSE(is_bounded("[" + times(50, "[],") + "0]", bounds));
  EXPECT_FALSE(is_bounded("[" + times(50, "{},") + "0]", bounds));
}

TEST(BoundedJson, Texts) {
  const JsonBounds bounds;
  EXPECT_TRUE(is_bounded("\"" + std::string(bounds.text, 'x') + "\""));
  EXPECT_FALSE(is_bounded("\"" + std::string(bounds.text + 1, 'x') + "\""));
  EXPECT_FALSE(is_bounded("{\"" + std::string(bounds.text + 1, 'x') + "\": 1}")) << "of keys, too";
  EXPECT_FALSE(is_bounded("\"" + std::string(bounds.text + 10, 'x'))) << "that do not end";
}

TEST(BoundedJson, Bytes) {
  const JsonBounds bounds;
  EXPECT_TRUE(is_bounded(std::string(bounds.bytes, ' ')));
  EXPECT_FALSE(is_bounded(std::string(bounds.bytes + 1, ' ')));
}

}  // namespace
}  // namespace gradlane::test::bounded_json_test
