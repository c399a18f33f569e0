// scan_test.cc - a scan that skips the values that it need not see gives the same result
#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "tests/compress/isa_test.h"
#include "tests/compress/test_floats.h"
#include "tests/thorough.h"

namespace gradlane::test::look_test {
namespace {

class LookTest : public IsaTest {};

constexpr size_t kFloats = 300000;

enum class Data { kEven, kLargeHead, kGrowing, kAlike };

std::vector<float> floats_of(Data data) {
  Rng rng(1);
  std::vector<float> floats(kFloats);
  for (size_t i = 0; i < kFloats; ++i) {
    float f = -std::log((static_cast<float>(rng.bits() >> 8) + 1.0F) * 0x1p-24F);
    if (data == Data::kLargeHead && i < 10000) f *= 1000;
    if (data == Data::kGrowing) f *= 1 + static_cast<float>(i) * 1e-4F;
    if (data == Data::kAlike) f = 0.5F;
    floats[i] = rng.one_in(2) ? f : -f;
  }
  return floats;
}

// Scans in slices, as an exchange does, and finishes the scan. Returns how many floats each pass has scanned.
std::vector<size_t> look_at(Codec& codec, std::span<const float> in, bool skips) {
  std::vector<size_t> seen(codec.passes());
  const auto scan = std::make_unique<TensorScan>();
  while (scan->pass < codec.passes()) {
    if (skips) scan->values = std::clamp<uint64_t>(scan->next, scan->values, in.size());
    const size_t at = scan->values;
    if (at == in.size()) {
      codec.end_pass(*scan);
      continue;
    }
    const size_t count = std::min(8192 - at % 8192, in.size() - at);
    codec.scan(*scan, {in.data() + at, nullptr, nullptr, count, at});
    seen[scan->pass] += count;
  }
  codec.finish_scan(*scan, 0);
  return seen;
}

TEST_P(LookTest, WhatIsSkippedDoesNotMatter) {
  for (const char* name : {"topk:1%", "mstopk:1%", "mstopk:10%", "dgc:1%", "dgc:1%,clip=0.1"}) {
    for (const Data data : {Data::kEven, Data::kLargeHead, Data::kGrowing, Data::kAlike}) {
      const std::vector<float> in = floats_of(data);
      for (uint64_t seed = 1; seed <= (thorough() ? 3 : 1); ++seed) {
        Codec mine = codec(name), patient = codec(name);
        mine.seed(0, seed);
        patient.seed(0, seed);
        look_at(mine, in, true);
        look_at(patient, in, false);
        ASSERT_EQ(encode_all(mine, in), encode_all(patient, in)) << name << ", " << static_cast<int>(data);
      }
    }
  }
}

// The last pass of topk and dgc sees no values. mstopk skips its second pass; its third one finds where the run begins
// and ends.
TEST_P(LookTest, MostIsSkipped) {
  const std::vector<float> in = floats_of(Data::kEven);
  Codec topk = codec("topk:1%"), mstopk = codec("mstopk:1%"), dgc = codec("dgc:1%");
  EXPECT_EQ(look_at(topk, in, true), (std::vector<size_t>{kFloats, 0}));
  EXPECT_EQ(look_at(dgc, in, true)[2], 0U);
  const std::vector<size_t> seen = look_at(mstopk, in, true);
  EXPECT_EQ(seen[1], 0U);
  EXPECT_GT(seen[2], 0U);
  EXPECT_LT(seen[2], kFloats / 3);
}

INSTANTIATE_TEST_SUITE_P(Isa, LookTest, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::look_test
