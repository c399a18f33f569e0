// inceptionn_sum_test.cc - the sums of codec `inceptionn`: within p * 2^-b of the sum of the floats
//
// Each hop rounds again, within the bound of one contribution, so the result may depend on the order of the ranks. A
// sum keeps its bound while no partial sum reaches 2^(24-b). Beyond that nothing is promised: fp32 addition itself
// rounds by more.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/compress/isa_test.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test::inceptionn_sum_test {
namespace {

constexpr int kRanks = 8;
constexpr size_t kFloats = 500;

class InceptionnSum : public IsaTest {
 protected:
  // Adds one rank per hop, whose float i is make(i), and checks the sum after each hop. Sums must be exact in a double.
  template <class Make>
  static void add_ranks(const Codec& codec, Make make) {
    std::vector<double> exact(kFloats);
    std::vector<uint8_t> block = encode_all(codec, std::vector<float>(kFloats));
    for (int p = 1; p <= kRanks; ++p) {
      std::vector<float> local;
      for (size_t i = 0; i < kFloats; ++i) {
        local.push_back(make(i));
        exact[i] += static_cast<double>(local[i]);
      }
      std::vector<uint8_t> out(codec.max_bytes(kFloats));
      const HopResult hop = codec.hop(block, local, out);
      ASSERT_EQ(hop.status, Status::kOk);
      ASSERT_EQ(hop.floats, kFloats);
      out.resize(hop.bytes);
      block = std::move(out);
      const std::vector<float> sums = decode_all(codec, block, kFloats);
      const double bound = p * std::ldexp(1.0, -(codec.param() & 0x7f));
      for (size_t i = 0; i < kFloats; ++i) {
        ASSERT_LE(std::fabs(static_cast<double>(sums[i]) - exact[i]), bound)
            << codec.name() << ", " << p << " ranks, float " << i;
      }
    }
  }
};

TEST_P(InceptionnSum, StaysWithinBoundPerRank) {
  Rng rng(8);
  for (const char* name :
       {"inceptionn:2", "inceptionn:7", "inceptionn:10", "inceptionn:14", "inceptionn:10,truncate"}) {
    // Values are multiples of 2^-30 below 1.
    ASSERT_NO_FATAL_FAILURE(add_ranks(codec(name), [&](size_t) {
      return std::ldexp(static_cast<float>(rng.bits() >> 8) - 0x1p23F, -23 - static_cast<int>(rng.below(8)));
    }));
  }
}

// The ranks divide the range, below 2^(24-b), equally. The first 250 floats have full size and the same sign on all
// ranks; the others are random.
TEST_P(InceptionnSum, StaysWithinBoundUpToTheEndOfItsRange) {
  Rng rng(9);
  for (const char* name : {"inceptionn:2", "inceptionn:7", "inceptionn:10", "inceptionn:14", "inceptionn:2,truncate",
                           "inceptionn:10,truncate", "inceptionn:14,truncate"}) {
    const Codec mine = codec(name);
    const float share = std::ldexp(1.0F / kRanks, 24 - (mine.param() & 0x7f));
    ASSERT_NO_FATAL_FAILURE(add_ranks(mine, [&](size_t i) {
      const uint32_t mantissa = i < 2 ? 0xffffff : i < 250 ? 0x800000 | rng.bits() >> 8 : rng.bits() >> 8;
      const int exponent = i < 250 ? -24 : -24 - static_cast<int>(rng.below(20));
      const bool negative = i < 250 ? i % 2 != 0 : rng.one_in(2);
      return std::ldexp(static_cast<float>(mantissa), exponent) * (negative ? -share : share);
    }));
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, InceptionnSum, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::inceptionn_sum_test
