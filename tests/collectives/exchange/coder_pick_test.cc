// coder_pick_test.cc - tests that minima and maxima of every type are exact and do not depend on the order
#include <gtest/gtest.h>

#include <iterator>

#include "tests/collectives/exchange/coder_fixture.h"

namespace gradlane::test::coder_test {
namespace {

class CoderPickTest : public IsaTest {};

// Returns elements with many equal values, zeros of both signs, NaNs with payloads, infinities, and the limits of
// integers.
Bytes pickable(Rng& rng, ElementType type, size_t count) {
  const size_t width = element_bytes(type);
  Bytes bytes(count * width);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.bits());
  const uint64_t sign = uint64_t{1} << (8 * width - 1);
  const uint64_t infinity = is_floating(type) ? format_of(type).infinity() : sign - 1;
  for (size_t i = 0; i < count; i += 1 + rng.below(3)) {
    const uint64_t words[] = {0, 1, infinity, infinity + 1, infinity - 1, infinity / 3};
    set_word(bytes, width, i, words[rng.below(std::size(words))] ^ (rng.below(2) != 0 ? sign : 0));
  }
  return bytes;
}

TEST_P(CoderPickTest, PicksTheSmallerAndTheLarger) {
  Rng rng(8);
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kFloat64, ElementType::kFloat16, ElementType::kBfloat16,
        ElementType::kInt32, ElementType::kInt64, ElementType::kBytes}) {
    for (const Reduction reduction : {Reduction::kMin, Reduction::kMax}) {
      const Coder coder(type, codec("fixed:10"), reduction);
      const size_t width = element_bytes(type);
      // Elements travel uncompressed, also fp32.
      EXPECT_EQ(coder.codec_id(), kNoCodec);
      EXPECT_EQ(coder.codec_param(), 0);
      for (const size_t count : kCounts) {
        const Bytes first = pickable(rng, type, count);
        const Bytes second = pickable(rng, type, count);
        Bytes want(first.size());
        for (size_t i = 0; i < count; ++i) {
          set_word(
              want, width, i,
              reference_pick(type, reduction == Reduction::kMax, word_at(first, width, i), word_at(second, width, i)));
        }
        Odd in(first), block(first.size()), local(second), out(want.size()), back(first.size());
        EXPECT_EQ(coder.max_bytes(count), first.size());
        EXPECT_EQ(coder.encode(in.data(), count, {}, block.span()).bytes, first.size());
        EXPECT_EQ(coder.decode(block.span(), back.data(), count), Status::kOk);
        EXPECT_EQ(back.first(first.size()), first);
        const HopResult hop = coder.hop(block.span(), local.data(), count, {}, out.span());
        ASSERT_EQ(hop.status, Status::kOk);
        ASSERT_EQ(hop.floats, count);
        ASSERT_EQ(out.first(hop.bytes), want) << element_name(type) << " " << reduction_name(reduction);
        // The order does not matter.
        ASSERT_EQ(coder.hop(local.span(), block.data(), count, {}, out.span()).status, Status::kOk);
        ASSERT_EQ(out.first(hop.bytes), want) << element_name(type) << " " << reduction_name(reduction);
        ASSERT_EQ(coder.add(block.span(), local.data(), count), Status::kOk);
        ASSERT_EQ(local.first(want.size()), want) << element_name(type) << " " << reduction_name(reduction);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, CoderPickTest, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::coder_test
