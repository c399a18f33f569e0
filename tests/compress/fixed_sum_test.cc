// fixed_sum_test.cc - the sums of codec `fixed`. They are exact, the same in every order of the ranks, and within p *
// 2^-b of the sum of the floats. Error feedback makes them unbiased over time.
// The model is integer arithmetic. Rank r contributes q = nearest-even(f / s) steps of s = 2^(1-b). The result is the
// encoding of s times the sum of all q.
//
// A sum keeps these promises while no partial sum reaches 2^24 steps, which is 2^(25-b). Beyond that nothing is
// promised: fp32 does not represent every multiple of s there. Additions then round by more than the bound, and the
// result depends on their order.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/compress/isa_test.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test::fixed_sum_test {
namespace {

using Ranks = std::vector<std::vector<float>>;

class FixedSum : public IsaTest {
 protected:
  static double step(const Codec& codec) { return std::ldexp(1.0, 1 - codec.param()); }

  // Returns the block that arrives at the end of a reduce along `order`.
  static std::vector<uint8_t> reduce(const Codec& codec, const Ranks& ranks, const std::vector<size_t>& order) {
    std::vector<uint8_t> block = encode_all(codec, ranks[order[0]]);
    for (size_t i = 1; i < order.size(); ++i) {
      const std::vector<float>& local = ranks[order[i]];
      std::vector<uint8_t> sum(codec.max_bytes(local.size()));
      const HopResult hop = codec.hop(block, local, sum);
      EXPECT_EQ(hop.status, Status::kOk);
      EXPECT_EQ(hop.floats, local.size());
      sum.resize(hop.bytes);
      block = std::move(sum);
    }
    return block;
  }

  static std::vector<size_t> first_order(size_t ranks) {
    std::vector<size_t> order(ranks);
    std::iota(order.begin(), order.end(), size_t{0});
    return order;
  }

  // Checks that every order gives the same bytes. Returns the decoded sum.
  static std::vector<float> reduce_in_all_orders(const Codec& codec, const Ranks& ranks) {
    std::vector<size_t> order = first_order(ranks.size());
    const std::vector<uint8_t> block = reduce(codec, ranks, order);
    while (std::next_permutation(order.begin(), order.end())) {
      EXPECT_TRUE(reduce(codec, ranks, order) == block) << codec.name() << " " << testing::PrintToString(order);
      if (HasFailure()) break;
    }
    return decode_all(codec, block, ranks[0].size());
  }

  // Returns the sum by the model. No order of the ranks may have a partial sum beyond 2^24 steps.
  static std::vector<float> integer_sum(const Codec& codec, const Ranks& ranks) {
    std::vector<float> sums;
    for (size_t i = 0; i < ranks[0].size(); ++i) {
      int64_t steps = 0;
      int64_t sizes = 0;
      for (const std::vector<float>& rank : ranks) {
        const int64_t q = std::llrint(static_cast<double>(rank[i]) / step(codec));  // the quotient is exact
        steps += q;
        sizes += std::abs(q);
      }
      // the larger of two sums: of the positive q, and of the magnitudes of the negative q
      EXPECT_LE((sizes + std::abs(steps)) / 2, int64_t{1} << 24);
      sums.push_back(static_cast<float>(static_cast<double>(steps) * step(codec)));
    }
    return sums;
  }

  // Returns four ranks. Float i of a rank contributes steps[i % rows][rank] steps.
  template <size_t kRows>
  static Ranks ranks_of_steps(const Codec& codec, const double (&steps)[kRows][4], size_t floats) {
    Ranks ranks(4);
    for (size_t i = 0; i < floats; ++i) {
      for (size_t r = 0; r < 4; ++r) ranks[r].push_back(static_cast<float>(steps[i % kRows][r] * step(codec)));
    }
    return ranks;
  }

  // Tests each row alone, in each lane of a group of small values, so that no other row hides an error.
  template <size_t kRows>
  static void one_at_a_time(const Codec& codec, const double (&steps)[kRows][4]) {
    for (const auto& row : steps) {
      for (size_t lane = 0; lane < kGroupFloats; ++lane) {
        Ranks ranks(4, std::vector<float>(kGroupFloats, static_cast<float>(3 * step(codec))));
        for (size_t r = 0; r < 4; ++r) ranks[r][lane] = static_cast<float>(row[r] * step(codec));
        const std::vector<float> want = integer_sum(codec, ranks);
        ASSERT_EQ(decode_all(codec, reduce(codec, ranks, {0, 1, 2, 3}), kGroupFloats), want) << row[0] << ", " << lane;
        ASSERT_EQ(decode_all(codec, reduce(codec, ranks, {3, 1, 0, 2}), kGroupFloats), want) << row[0] << ", " << lane;
      }
    }
  }
};

TEST_P(FixedSum, OrderOfRanksDoesNotMatter) {
  Rng rng(1);
  for (const char* name : {"fixed:1", "fixed:10", "fixed:20", "fixed:30"}) {
    const Codec fixed = codec(name);
    const FloatSource source(fixed);
    for (const Kind kind : {Kind::kGradients, Kind::kNarrowEdges, Kind::kSteps, Kind::kSparse, Kind::kResidual}) {
      Ranks ranks;
      for (int r = 0; r < 4; ++r) {
        ranks.push_back(source.make(rng, kind, 200));
        // The sum of four such ranks stays below 2^24 steps, and there are still raw floats among them.
        const auto limit = static_cast<float>(0x1p21 * step(fixed));
        for (float& f : ranks.back()) f = std::clamp(f, -limit, limit);
      }
      EXPECT_EQ(reduce_in_all_orders(fixed, ranks), integer_sum(fixed, ranks)) << name;
    }
  }
}

// Partial sums leave the range of 16 bits and come back into it. A kernel that saturates would give a wrong sum.
TEST_P(FixedSum, SixteenBitsOverflow) {
  constexpr double kSteps[][4] = {
      {40000, -20000, 0, 0},
      {-40000, 20000, 0, 0},
      {32767, 1, 0, 0},
      {32767, 1, -1, 0},
      {-32768, 0, 0, 0},
      {-32767, -1, 0, 0},
      {-32767, -1, 1, 0},
      {-32768, -1, 32767, 2},
      {32767, 32767, -32767, -32767},
      {20000, 20000, -20000, -20000},
      {32768, -32768, 1, 0},
      {65535, -65535, 127, 1},
      {30000, 30000, 30000, -65535},
      {-32768, -32768, 32767, 32767},
      {32766, 1, 1, -1},
      {-32766, -1, -1, 1},
      {127, 1, -1, 0},
      {-127, -1, 0, 0},
      {-128, 1, 0, 0},
      {65536, -65536, 0, 0},
  };
  for (const char* name : {"fixed:1", "fixed:10", "fixed:30"}) {
    const Codec fixed = codec(name);
    const Ranks all = ranks_of_steps(fixed, kSteps, 3 * std::size(kSteps));
    EXPECT_EQ(reduce_in_all_orders(fixed, all), integer_sum(fixed, all)) << name;
  }
  ASSERT_NO_FATAL_FAILURE(one_at_a_time(codec("fixed:10"), kSteps));
}

// A foreign block may have words that encode() never writes.
TEST_P(FixedSum, ExtremeWordsFromOutside) {
  const Codec fixed = codec("fixed:10");
  const auto s = static_cast<float>(step(fixed));
  // 16 planes, one per bit of the words; bit i of a plane belongs to float i. Float 0 is -32768 (bit 15 alone), float 1
  // is -128 (bits 7 to 15).
  std::vector<uint8_t> block = {0x0f};
  for (unsigned plane = 0; plane < 16; ++plane) {
    const int bits = plane < 7 ? 0 : plane < 15 ? 2 : 3;
    block.insert(block.end(), {static_cast<uint8_t>(bits), 0, 0, 0});
  }
  block.insert(block.end(), {16, 0, 0, 0, 0});
  EXPECT_EQ(decode_all(fixed, block, 2), (std::vector<float>{-32768 * s, -128 * s}));
  const struct { float local, sum; } rows[] = {{0, -32768}, {1, -32767}, {-1, -32769}, {32767, -1}, {-32767, -65535}};
  for (const auto& row : rows) {
    std::vector<uint8_t> out(fixed.max_bytes(2));
    const HopResult hop = fixed.hop(block, std::vector<float>{row.local * s, 0}, out);
    ASSERT_EQ(hop.status, Status::kOk);
    out.resize(hop.bytes);
    EXPECT_EQ(decode_all(fixed, out, 2), (std::vector<float>{row.sum * s, -128 * s}));
  }
}

// Floats represent integers up to 2^24 exactly.
TEST_P(FixedSum, PartialSumsUpTo24Bits) {
  constexpr double k24 = 0x1p24;
  constexpr double kSteps[][4] = {
      {k24 - 1, -1, 1, 0},
      {k24 - 2, 1, -k24 + 1, 0},
      {0x1p23, 0x1p23 - 1, -1, 1},
      {-0x1p23, -0x1p23 + 1, 1, -1},
      {k24 - 1, -k24 + 1, 1, -1},
      {-k24 + 1, k24 - 127, 126, -1},
      {0x1p23 - 1, 1, 0, 0},
      {0x1p23 - 0.5, 1, 0, 0},
      {0x1p22 + 0.5, 0x1p22 + 0.5, 0x1p22 - 0.5, 1},
      {0x1p22, 0x1p22, 0x1p22, 0x1p22 - 1},
      {-0x1p23 + 0.5, -0x1p22 + 0.5, 0.5, 1.5},
      {0x1p23 + 1, 5, -0x1p23, 3},
      {0x1p22 + 1, -0x1p22 - 0.5, 0, 0},
      {0x1p22 + 3, -0x1p22 - 1.5, 1, 0},
      {-0x1p22 - 1, 0x1p22 + 0.5, 0, 0},
  };
  for (const char* name : {"fixed:1", "fixed:10", "fixed:30"}) {
    const Codec fixed = codec(name);
    const Ranks ranks = ranks_of_steps(fixed, kSteps, 4 * std::size(kSteps));
    EXPECT_EQ(reduce_in_all_orders(fixed, ranks), integer_sum(fixed, ranks)) << name;
    ASSERT_NO_FATAL_FAILURE(one_at_a_time(fixed, kSteps));
  }
}

// Any mix of NaNs, infinities and finite numbers gives one result in all 24 orders of the ranks.
TEST_P(FixedSum, NanAndInfinityInAllOrders) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float values[] = {
      1.5F, -0.0F, 12345.0F, kInf, -kInf, float_of(0x7fc00000), float_of(0xffc54321), float_of(0x7f800001)};
  constexpr size_t kValues = std::size(values);
  const Codec fixed = codec("fixed:10");
  Ranks ranks(4);
  for (size_t i = 0; i < kValues * kValues * kValues * kValues; ++i) {
    size_t digits = i;
    for (std::vector<float>& rank : ranks) {
      rank.push_back(values[digits % kValues]);
      digits /= kValues;
    }
  }
  const std::vector<float> sums = reduce_in_all_orders(fixed, ranks);
  for (size_t i = 0; i < sums.size(); ++i) {
    const float want = ranks[0][i] + ranks[1][i] + ranks[2][i] + ranks[3][i];
    ASSERT_EQ(bits_of(sums[i]), std::isnan(want) ? 0x7fc00000 : bits_of(want + 0.0F)) << i;
  }
}

TEST_P(FixedSum, TotalErrorIsWithinBoundPerRank) {
  Rng rng(2);
  for (const char* name : {"fixed:1", "fixed:10", "fixed:20"}) {
    const Codec fixed = codec(name);
    for (const size_t p : std::initializer_list<size_t>{2, 3, 4, 8, 17, 64}) {
      Ranks ranks(p, std::vector<float>(500));
      for (std::vector<float>& rank : ranks) {
        // Values are multiples of 2^-34, at most 1, so any sum of them is exact in a double.
        for (float& f : rank)
          f = std::ldexp(static_cast<float>(rng.bits() >> 8), -24 - static_cast<int>(rng.below(11)));
        for (float& f : rank) f = rng.one_in(2) ? -f : f;
      }
      const std::vector<float> sums = decode_all(fixed, reduce(fixed, ranks, first_order(p)), 500);
      const double bound = static_cast<double>(p) * std::ldexp(1.0, -fixed.param());
      for (size_t i = 0; i < sums.size(); ++i) {
        double exact = 0;
        for (const std::vector<float>& rank : ranks) exact += static_cast<double>(rank[i]);
        ASSERT_LE(std::fabs(static_cast<double>(sums[i]) - exact), bound) << name << ", " << p << " ranks";
      }
    }
  }
}

// Returns contributions whose sum stays just below 2^24 steps. The first 100 floats have full size and the same sign on
// all ranks; the others are random.
Ranks shares_of_range(Rng& rng, const Codec& codec, size_t p) {
  const int top = 25 - codec.param() - static_cast<int>(std::bit_width(p - 1));  // a share is below 2^top
  Ranks ranks(p, std::vector<float>(200));
  for (std::vector<float>& rank : ranks) {
    for (size_t i = 0; i < rank.size(); ++i) {
      if (i < 100) {
        const uint32_t mantissa = i < 2 ? 0xffffff : 0x800000 | rng.bits() >> 8;
        rank[i] = std::ldexp(static_cast<float>(mantissa), top - 24) * (i % 2 == 0 ? 1.0F : -1.0F);
      } else {  // multiples of 2^(top - 43), so that any sum of 64 of these is exact in a double
        rank[i] = std::ldexp(static_cast<float>(rng.bits() >> 8), top - 24 - static_cast<int>(rng.below(20)));
        if (rng.one_in(2)) rank[i] = -rank[i];
      }
    }
  }
  return ranks;
}

TEST_P(FixedSum, PromisesHoldUpToTheEndOfTheRange) {
  Rng rng(4);
  for (const char* name : {"fixed:1", "fixed:10", "fixed:20", "fixed:30"}) {
    const Codec fixed = codec(name);
    for (const size_t p : std::initializer_list<size_t>{2, 3, 4, 8, 64}) {
      SCOPED_TRACE(std::string(name) + ", " + std::to_string(p) + " ranks");
      const Ranks ranks = shares_of_range(rng, fixed, p);
      const std::vector<float> sums = integer_sum(fixed, ranks);
      std::vector<size_t> order = first_order(p);
      for (int repeat = 0; repeat < 6; ++repeat) {
        ASSERT_EQ(bits_of(decode_all(fixed, reduce(fixed, ranks, order), sums.size())), bits_of(sums));
        for (size_t i = p; i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
      }
      const double bound = static_cast<double>(p) * std::ldexp(1.0, -fixed.param());
      for (size_t i = 0; i < sums.size(); ++i) {
        double exact = 0;
        for (const std::vector<float>& rank : ranks) exact += static_cast<double>(rank[i]);
        ASSERT_LE(std::fabs(static_cast<double>(sums[i]) - exact), bound) << i;
      }
    }
  }
}

// The error can reach the bound: errors of half a step, all in the same direction, add up to it.
TEST_P(FixedSum, TotalErrorReachesItsBound) {
  const Codec fixed = codec("fixed:10");
  const Ranks ranks(64, std::vector<float>(40, 0x3p-10F));  // 1.5 steps, rounded to 2
  const std::vector<float> sums = decode_all(fixed, reduce(fixed, ranks, first_order(64)), 40);
  for (const float sum : sums) EXPECT_EQ(sum - 64 * 0x3p-10F, 64 * 0x1p-10F);
}

// Exchanges the same floats of all ranks 1000 times. Returns the mean of the decoded sums.
std::vector<double> mean_of_exchanges(const Codec& codec, const Ranks& ranks, bool feedback) {
  constexpr int kTimes = 1000;
  const size_t floats = ranks[0].size();
  Ranks residuals(ranks.size(), std::vector<float>(floats));
  std::vector<double> mean(floats);
  for (int t = 0; t < kTimes; ++t) {
    std::vector<uint8_t> block(codec.max_bytes(floats));
    std::vector<uint8_t> sum(block.size());
    block.resize(
        (feedback ? codec.encode_feedback(ranks[0], residuals[0].data(), block) : codec.encode(ranks[0], block)).bytes);
    for (size_t r = 1; r < ranks.size(); ++r) {
      sum.resize(codec.max_bytes(floats));
      const HopResult hop =
          feedback ? codec.hop_feedback(block, ranks[r], residuals[r].data(), sum) : codec.hop(block, ranks[r], sum);
      EXPECT_EQ(hop.status, Status::kOk);
      sum.resize(hop.bytes);
      std::swap(block, sum);
    }
    const std::vector<float> sums = decode_all(codec, block, floats);
    for (size_t i = 0; i < floats; ++i) mean[i] += static_cast<double>(sums[i]) / kTimes;
  }
  return mean;
}

// With feedback, rank r sends x(t) - e(t), where x(t) = c + e(t-1) and e is its residual. After T exchanges it has sent
// T c + e(0) - e(T), and |e| <= 2^-b. So the mean over T exchanges of p ranks is within p 2^-b / T of the sum of all c.
// In addition, each c + e is rounded by at most 2^-24 |x|, for each rank in each exchange.
TEST_P(FixedSum, FeedbackMakesTheMeanConverge) {
  Rng rng(3);
  const Codec fixed = codec("fixed:10");
  Ranks ranks(4);
  for (std::vector<float>& rank : ranks) {
    for (int i = 0; i < 70; ++i) {  // 40 small values, then values of all classes in the last groups
      const float unit = i < 40 ? 0x1p-11F : 0x1p-11F * static_cast<float>(1U << (i % 24));
      rank.push_back((static_cast<float>(rng.bits() >> 8) * 0x1p-23F - 1.0F) * unit);
    }
  }
  const std::vector<double> mean = mean_of_exchanges(fixed, ranks, true);
  for (size_t i = 0; i < mean.size(); ++i) {
    double exact = 0;
    double rounding = 0;
    for (const std::vector<float>& rank : ranks) {
      exact += static_cast<double>(rank[i]);
      rounding += (std::fabs(static_cast<double>(rank[i])) + 0x1p-10) * 0x1p-24;
    }
    EXPECT_LE(std::fabs(mean[i] - exact), 4 * 0x1p-10 / 1000 + rounding) << i;
  }
}

TEST_P(FixedSum, WithoutFeedbackHalvesOfStepsAreLost) {
  const Codec fixed = codec("fixed:10");
  const Ranks ranks(4, std::vector<float>(40, 0.4F * 0x1p-9F));  // 0.4 steps
  for (const double mean : mean_of_exchanges(fixed, ranks, false)) EXPECT_EQ(mean, 0.0);
  for (const double mean : mean_of_exchanges(fixed, ranks, true)) EXPECT_NEAR(mean, 1.6 * 0x1p-9, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Isa, FixedSum, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::fixed_sum_test
