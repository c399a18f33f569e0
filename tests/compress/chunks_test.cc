// chunks_test.cc - codecs with a scale for each chunk: all sizes of chunks, extremes, NaN and Inf, and the mean of many
// exchanges with an owner
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/compress/isa_test.h"
#include "tests/compress/test_calls.h"
#include "tests/thorough.h"

namespace gradlane::test::chunks_test {
namespace {

class Chunks : public IsaTest {};

constexpr const char* kNames[] = {"onebit", "qsgd:1", "qsgd:4", "qsgd:7", "qsgd:8", "int8", "fp8"};
constexpr const char* kSizes[] = {"onebit:512", "onebit:1024", "qsgd:1/1024", "qsgd:3/256", "qsgd:4/1024",
                                  "int8:512",   "int8:1024",   "fp8:512",     "fp8:1024"};

double wide(float f) { return static_cast<double>(f); }

TEST_P(Chunks, EverySizeIsAsTheScalarOne) {
  Rng rng(1);
  HeapMemory memory;
  for (const char* name : kSizes) {
    const Codec scalar = find_codec(name, Isa::kScalar), mine = codec(name);
    EXPECT_EQ(mine.name(), name);
    EXPECT_EQ(mine.granule(), mine.arguments().extra);
    const FloatSource source(scalar);
    for (int repeat = 0; repeat < 6; ++repeat) {
      const CallData data = make_data(rng, scalar, source, rng.below(2500));
      for (const Call& call : make_calls(rng, scalar, data)) {
        const Outcome want = run(scalar, call, memory);
        const Outcome got = run(mine, call, memory);
        ASSERT_TRUE(want == got) << describe(mine, call) << ": " << difference(want, got);
      }
    }
  }
}

TEST_P(Chunks, SizesThatThereAreNot) {
  for (const char* name : {"onebit:128", "onebit:300", "int8:2048", "qsgd:0", "qsgd:9", "qsgd", "qsgd:4/100"}) {
    EXPECT_ANY_THROW((void)find_codec(name)) << name;
  }
}

// Finite values and their residuals stay finite, and the error bound holds.
TEST_P(Chunks, Extremes) {
  constexpr float kMost = 0x1.fffffep127F;
  const std::vector<std::vector<float>> runs = {
      std::vector<float>(300, 0.37F), std::vector<float>(77, -kMost),  std::vector<float>(256, kMost),
      std::vector<float>(99, 1e-45F), std::vector<float>(99, -2e-38F), {kMost, -kMost, 3e38F, -1, 0},
      {kMost, 3e38F, 3.2e38F},        {1e-45F, -1e-45F, 1e-40F},       {0x1p-126F, 0x1p-125F, -0x1p-120F},
  };
  for (const char* name : kNames) {
    const Codec mine = codec(name);
    const CodecError error = mine.error();
    for (const std::vector<float>& in : runs) {
      std::vector<float> owed(in.size());
      std::vector<uint8_t> block(mine.max_bytes(in.size()));
      block.resize(mine.encode_feedback(in, owed.data(), block).bytes);
      const std::vector<float> out = decode_all(mine, block, in.size());
      for (size_t from = 0; from < in.size(); from += mine.granule()) {
        const size_t end = std::min(in.size(), from + mine.granule());
        double largest = 0;
        for (size_t i = from; i < end; ++i) largest = std::max(largest, std::fabs(wide(in[i])));
        for (size_t i = from; i < end; ++i) {
          ASSERT_LE(std::fabs(wide(out[i]) - wide(in[i])),
                    error.relative * std::fabs(wide(in[i])) + error.absolute + error.of_largest * largest)
              << name << ", " << in[i];
          ASSERT_TRUE(std::isfinite(out[i]) && std::isfinite(owed[i])) << name << ", " << in[i];
        }
      }
    }
  }
}

// NaN and Inf are sent. The finite floats of their chunk are not: they stay in the residual. Other chunks are not
// affected.
TEST_P(Chunks, WhatIsNotFinite) {
  Rng rng(2);
  for (const char* name : kNames) {
    const Codec mine = codec(name);
    const size_t chunk = mine.granule();
    std::vector<float> in = FloatSource(mine).make(rng, Kind::kGradients, 3 * chunk);
    in[chunk] = float_of(0xff812345);
    in[chunk + 3] = HUGE_VALF;
    in[2 * chunk - 1] = -HUGE_VALF;
    std::vector<float> owed(in.size());
    std::vector<uint8_t> block(mine.max_bytes(in.size()));
    block.resize(mine.encode_feedback(in, owed.data(), block).bytes);
    const std::vector<float> out = decode_all(mine, block, in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      const bool here = i / chunk == 1;
      if (std::isfinite(in[i])) {
        ASSERT_EQ(owed[i], here ? in[i] : in[i] - out[i]) << name << ", " << i;
        if (here) {
          ASSERT_EQ(out[i], 0) << name;
        }
      } else {
        ASSERT_EQ(owed[i], 0) << name;
        ASSERT_EQ(bits_of(out[i]), std::isnan(in[i]) ? 0x7fc00000 : bits_of(in[i])) << name;
      }
    }
  }
}

// The decoded value plus the residual is the input, up to half an ulp of the residual.
TEST_P(Chunks, SentAndOwedIsAll) {
  Rng rng(3);
  for (const char* name : kNames) {
    const Codec mine = codec(name);
    const std::vector<float> in = FloatSource(mine).make(rng, Kind::kGradients, 2000);
    std::vector<float> owed(in.size());
    std::vector<uint8_t> block(mine.max_bytes(in.size()));
    block.resize(mine.encode_feedback(in, owed.data(), block).bytes);
    const std::vector<float> out = decode_all(mine, block, in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      const double left = wide(in[i]) - wide(out[i]) - wide(owed[i]);
      ASSERT_LE(std::fabs(left), 0x1p-24 * std::fabs(wide(owed[i]))) << name;
    }
  }
}

// ---- Many exchanges of four ranks and an owner

struct Exchange {
  Exchange(const Codec& by, size_t floats) : codec(by), second(floats), sum(floats), total(floats) {
    Rng rng(4);
    for (std::vector<float>& g : gradients) {
      for (size_t i = 0; i < floats; ++i) {
        g.push_back(static_cast<float>(static_cast<double>(rng.bits()) * 0x1p-32 - (i % 3 == 0 ? 0.5 : 0.1)));
      }
    }
    first.fill(std::vector<float>(floats));
  }

  std::vector<uint8_t> encoded(const std::vector<float>& in, float* owed) const {
    std::vector<uint8_t> block(codec.max_bytes(in.size()));
    block.resize(codec.encode_sum({in.data(), owed, in.size(), block.data(), block.size()}).bytes);
    return block;
  }

  void step(bool owner_owes) {
    std::ranges::fill(sum, 0.0F);
    for (size_t rank = 0; rank < gradients.size(); ++rank) {
      ASSERT_EQ(codec.decode_add(encoded(gradients[rank], first[rank].data()), sum), Status::kOk);
    }
    const std::vector<uint8_t> result = encoded(sum, owner_owes ? second.data() : nullptr);
    const std::vector<float> got = decode_all(codec, result, sum.size());
    for (size_t i = 0; i < got.size(); ++i) total[i] += wide(got[i]);
  }

  // Returns the greatest difference between the mean of `steps` results and the sum of the ranks' gradients.
  [[nodiscard]] double error(int steps) const {
    double most = 0;
    for (size_t i = 0; i < total.size(); ++i) {
      double exact = 0;
      for (const std::vector<float>& g : gradients) exact += wide(g[i]);
      most = std::max(most, std::fabs(total[i] / steps - exact));
    }
    return most;
  }

  Codec codec;
  std::array<std::vector<float>, 4> gradients;
  std::array<std::vector<float>, 4> first;  // residuals of the ranks; `second` is that of the owner
  std::vector<float> second;
  std::vector<float> sum;
  std::vector<double> total;
};

TEST_P(Chunks, TheMeanOfManyExchangesConverges) {
  constexpr int kSteps = 1000;
  // The error of the mean is the sum of the final residuals divided by kSteps. With onebit, residuals reach some
  // hundred times the values.
  const std::pair<const char*, double> bounds[] = {
      {"onebit", 0.4},   {"qsgd:2", 0.02},  {"qsgd:3", 0.008}, {"qsgd:4", 0.004}, {"qsgd:5", 0.002},
      {"qsgd:6", 0.001}, {"qsgd:7", 0.001}, {"qsgd:8", 0.001}, {"int8", 0.001},   {"fp8", 0.004}};
  for (const auto& [name, bound] : std::span(bounds).first(thorough() ? std::size(bounds) : 3)) {
    EXPECT_EQ(codec(name).states(), 2U) << name;
    Exchange both(codec(name), 300), without_owner(codec(name), 300);
    for (int i = 0; i < kSteps; ++i) {
      both.step(true);
      without_owner.step(false);
    }
    EXPECT_LT(both.error(kSteps), bound) << name;
    EXPECT_GT(without_owner.error(kSteps), 2 * both.error(kSteps)) << name << ": what the owner rounds is lost";
  }
}

// With two values, residuals widen the range that is rounded, and grow without limit. So these codecs keep no residual.
TEST_P(Chunks, TwoValuesDoNotConvergeAndTakeNoResidual) {
  for (const char* name : {"qsgd:1", "qsgd:1/256", "qsgd:1/1024"}) {
    const Codec mine = codec(name);
    EXPECT_TRUE(mine.row().feedback);
    EXPECT_FALSE(mine.has_feedback()) << name;
    EXPECT_EQ(mine.states(), 0U) << name;
    Exchange exchange(mine, 300);
    for (int i = 0; i < 400; ++i) exchange.step(true);
    EXPECT_GT(exchange.error(400), 1) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Chunks, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::chunks_test
