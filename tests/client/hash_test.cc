// hash_test.cc - tests of gradlane_hash(): XXH64 with seed 0
#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "client/gradlane.h"

namespace gradlane::test::hash_test {
namespace {

// The bytes with which xxhsum checks itself.
std::vector<uint8_t> make_bytes(size_t count) {
  std::vector<uint8_t> bytes(count);
  uint64_t state = 2654435761;
  for (uint8_t& byte : bytes) {
    byte = static_cast<uint8_t>(state >> 56);
    state *= 11400714785074694797U;
  }
  return bytes;
}

TEST(Hash, OfTexts) {
  const auto hash = [](std::string_view text) { return gradlane_hash(text.data(), text.size()); };
  EXPECT_EQ(hash("a"), 0xd24ec4f1a98c6e5bU);
  EXPECT_EQ(hash("abc"), 0x44bc2cf5ad770999U);
  EXPECT_EQ(hash("Nobody inspects the spammish repetition"), 0xfbcea83c8a378bf1U);
  EXPECT_EQ(gradlane_hash(nullptr, 0), 0xef46db3751d8e999U);
}

TEST(Hash, OfTheBytesOfXxhsum) {
  struct Row {
    size_t count;
    uint64_t hash;
  };
  constexpr Row kRows[] = {
      {0, 0xef46db3751d8e999},  {1, 0xe934a84adb052768},   {4, 0x9136a0dca57457ee},
      {14, 0x8282dcc4994e35c8}, {222, 0xb641ae8cb691c174},
  };
  for (const Row& row : kRows) {
    EXPECT_EQ(gradlane_hash(make_bytes(row.count).data(), row.count), row.hash) << row.count;
  }
}

TEST(Hash, AtAnyAddress) {
  std::vector<uint8_t> bytes = make_bytes(222);
  for (size_t at = 0; at < 8; ++at) {
    EXPECT_EQ(gradlane_hash(bytes.data() + at, 222), 0xb641ae8cb691c174U) << at;
    bytes.insert(bytes.begin(), 0);
  }
}

TEST(Hash, EveryBitCounts) {
  std::vector<uint8_t> bytes = make_bytes(79);
  const uint64_t hash = gradlane_hash(bytes.data(), bytes.size());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
    EXPECT_NE(gradlane_hash(bytes.data(), bytes.size()), hash) << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
  }
}

}  // namespace
}  // namespace gradlane::test::hash_test
