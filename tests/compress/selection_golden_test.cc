// selection_golden_test.cc - codecs that select, and votes, compared with tests/compress/golden_selection.txt; and the
// statistics of their random numbers. An independent implementation wrote that file (reference_selection.py).
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/compress/isa_test.h"
#include "tests/compress/selection_cases.h"

namespace gradlane::test::selection_golden_test {
namespace {

class SelectionGolden : public IsaTest {};

Floats read_floats(const std::string& text) {
  Floats floats;
  for (size_t i = 0; i + 8 <= text.size(); i += 8) {
    floats.push_back(float_of(static_cast<uint32_t>(std::stoul(text.substr(i, 8), nullptr, 16))));
  }
  return floats;
}

Block read_block(const std::string& text) {
  Block block;
  for (size_t i = 0; i + 2 <= text.size(); i += 2) {
    block.push_back(static_cast<uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return block;
}

struct Exchange {
  std::string name;
  uint64_t position = 0;
  uint64_t seeds[3] = {};
  Floats offers;
  std::vector<Floats> ranks;
  std::vector<Block> blocks;
};

std::vector<Exchange> read_all() {
  const char* const folder = std::getenv("GRADLANE_GOLDEN_DIR");
  if (folder == nullptr) return {};
  std::ifstream file(std::filesystem::path(folder).parent_path() / "golden_selection.txt");
  std::vector<Exchange> all;
  std::string line, word;
  std::getline(file, line);
  while (std::getline(file, line)) {
    Exchange& next = all.emplace_back();
    std::istringstream head(line);
    head >> next.name >> next.position >> next.seeds[0] >> next.seeds[1] >> next.seeds[2];
    while (head >> word) next.offers.push_back(read_floats(word)[0]);
    for (int i = 0; i < 3 && file >> word; ++i) next.ranks.push_back(read_floats(word));
    for (int i = 0; i < 3 && file >> word; ++i) next.blocks.push_back(read_block(word));
    std::getline(file, line);
  }
  return all;
}

TEST_P(SelectionGolden, BlocksOfOneTwoAndThreeRanks) {
  const std::vector<Exchange> all = read_all();
  ASSERT_GE(all.size(), 30U);
  for (const Exchange& exchange : all) {
    Block sum;
    for (size_t r = 0; r < 3; ++r) {
      const Floats& in = exchange.ranks[r];
      Codec mine = codec(exchange.name);
      auto scan = std::make_unique<TensorScan>();
      if (mine.passes() != 0) mine.scan(*scan, {in.data(), nullptr, nullptr, in.size(), 0});
      const float offer = exchange.offers[r];
      ASSERT_NEAR(mine.offer(*scan), offer, offer * 0x1p-22F) << exchange.name;
      // The file has the greatest offer even for codecs that agree on the mean: this test may use any value that all
      // ranks share.
      mine.finish_scan(*scan, agreed_on(Agreement::kGreatest, exchange.offers));
      mine.seed(1, exchange.seeds[r]);
      const Written written =
          r == 0 ? encode(mine, in, nullptr, exchange.position) : hop(mine, sum, in, nullptr, exchange.position);
      ASSERT_EQ(written.status, Status::kOk);
      ASSERT_EQ(written.block, exchange.blocks[r]) << exchange.name << " of " << in.size() << ", rank " << r;
      sum = written.block;
    }
  }
}

// ---- Random numbers

// Returns how far the mean of many draws is off, in units of its standard deviation. The mean of correct draws is off
// by more than 5 units in one of 1.7 million tests. For 2^20 draws of probability p, a bias of 0.005 sqrt(p (1 - p)) is
// 5 units. So every second test would find such a bias.
double deviations(double sum, double count, double p, double unit) {
  if (p <= 0 || p >= 1) return sum == count * p * unit ? 0 : 1e9;
  return (sum / unit - count * p) / std::sqrt(count * p * (1 - p));
}

TEST_P(SelectionGolden, RoundingHasNoBias) {
  constexpr size_t kCount = 1 << 20;
  if (GetParam() == Isa::kScalar) GTEST_SKIP() << "gives the same bytes, and takes long";
  for (const double p : {0.5, 0.25, 0.01, 0.9, 0.0, 1.0}) {
    for (const double whole : {0.0, 5.0}) {
      const Floats in(kCount, static_cast<float>(std::ldexp(whole + p, -9)));
      Codec stochastic = codec("fixed:10,stochastic");
      stochastic.seed(0, 11);
      double sum = 0;
      for (const float v : decode_all(stochastic, encode(stochastic, in).block, kCount)) {
        sum += static_cast<double>(v);
      }
      EXPECT_LT(std::fabs(deviations(sum - kCount * std::ldexp(whole, -9), kCount, p, std::ldexp(1, -9))), 5) << p;
    }
    const Floats in(kCount, static_cast<float>(-p));
    Codec terngrad = codec("terngrad:100");
    auto scan = std::make_unique<TensorScan>();
    terngrad.scan(*scan, {in.data(), nullptr, nullptr, in.size(), 0});
    terngrad.finish_scan(*scan, 1);
    terngrad.seed(0, 12);
    double sum = 0;
    for (const float v : decode_all(terngrad, encode(terngrad, in).block, kCount)) {
      ASSERT_TRUE(v == 0 || std::fabs(v) == 1);
      sum += static_cast<double>(v);
    }
    EXPECT_LT(std::fabs(deviations(-sum, kCount, p, 1)), 5) << p;
  }
}

// Draws of two ranks, and of neighbours, are independent.
TEST_P(SelectionGolden, RanksAndNeighboursDrawApart) {
  constexpr size_t kCount = 1 << 18;
  const Floats zeros(kCount);
  Codec mine = codec("signsgd"), other = mine;
  mine.seed(0, 1);
  other.seed(0, 2);
  const Floats a = decode_all(mine, encode(mine, zeros).block, kCount);
  const Floats b = decode_all(other, encode(other, zeros).block, kCount);
  double both = 0, next = 0, sum = 0;
  for (size_t i = 0; i + 1 < kCount; ++i) {
    both += static_cast<double>(a[i] * b[i]);
    next += static_cast<double>(a[i] * a[i + 1]);
    sum += static_cast<double>(a[i]);
  }
  for (const double product : {both, next, sum}) EXPECT_LT(std::fabs(product), 5 * std::sqrt(kCount));
}

// ---- Scales

TEST_P(SelectionGolden, RelativeBoundHolds) {
  Rng rng(9);
  for (const int k : {1, 5, 10, 23}) {
    for (const float largest : {1.0F, 0.9F, 1e-30F, 3e38F, 0x1p-126F, 0x1p-149F, 1e5F}) {
      Floats in(500);
      for (float& f : in) f = largest * (static_cast<float>(rng.bits()) * 0x1p-31F - 1);
      in[7] = largest;
      const std::vector<Floats> ranks = {in};
      const Codec mine = agreed("fixed:rel=" + std::to_string(k), GetParam(), ranks, 0);
      const Floats out = decode_all(mine, encode(mine, in).block, in.size());
      const CodecError error = mine.error();
      const double bound = error.of_largest * static_cast<double>(largest) + error.absolute;
      for (size_t i = 0; i < in.size(); ++i) {
        ASSERT_LE(std::fabs(static_cast<double>(out[i]) - static_cast<double>(in[i])), bound) << k << ", " << in[i];
      }
    }
  }
}

// Values lie near the ends of the range of fp32. Scales stay normal numbers, and values that are too large for them are
// clipped.
TEST_P(SelectionGolden, ExtremeScales) {
  for (const float largest : {3e38F, 0x1p104F, 0x1p103F, 0x1p-126F, 0x1p-140F}) {
    const std::vector<Floats> ranks = {Floats(100, largest)};
    const Codec terngrad = agreed("terngrad", GetParam(), ranks, 0);
    const float scale = std::max(0x1p-126F, std::min(largest, 0x1p103F));
    for (const float v : decode_all(terngrad, encode(terngrad, ranks[0]).block, 100)) {
      ASSERT_TRUE(v == 0 || std::fabs(v) == std::exp2(std::ceil(std::log2(scale)))) << v << " of " << largest;
    }
    const Codec signs = agreed("signsgd,ef", GetParam(), ranks, 0);
    for (const float v : decode_all(signs, encode(signs, ranks[0]).block, 100)) {
      ASSERT_TRUE(std::isnormal(v) && v > 0 && v <= 0x1p119F) << v << " of " << largest;
    }
  }
}

// ---- Votes

TEST_P(SelectionGolden, TheMajorityWins) {
  for (const std::string name : {"signsgd", "signsgd,ternary"}) {
    Codec mine = codec(name);
    mine.seed(77, 1);
    Floats sums = {3, -1, 0, -0.0F, 2, std::numeric_limits<float>::infinity(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    Floats again = sums;
    mine.finish(sums, 100);
    mine.seed(77, 2);  // seed of another rank
    mine.finish(again, 100);
    EXPECT_EQ(bits_of(sums), bits_of(again));
    EXPECT_EQ(sums[0], 1);
    EXPECT_EQ(sums[1], -1);
    EXPECT_EQ(sums[4], 1);
    EXPECT_TRUE(std::isinf(sums[5]));
    const bool ternary = name != "signsgd";
    float least = 0, most = 0;
    for (size_t i = 6; i < sums.size(); ++i) {
      least = std::min(least, sums[i]);
      most = std::max(most, sums[i]);
    }
    EXPECT_EQ(least, ternary ? 0 : -1);
    EXPECT_EQ(most, ternary ? 0 : 1);
  }
}

// Votes take one bit per float and two bytes per record, in contributions and in results.
TEST_P(SelectionGolden, VotesAreShort) {
  const Floats in(1024, 0.5F);
  Codec mine = codec("signsgd");
  EXPECT_EQ(encode(mine, in).block.size(), 4 * 34U);
  EXPECT_EQ(encode_sum(mine.for_results(), in).block.size(), 4 * 2U);  // rounds to 0: no votes
  EXPECT_EQ(encode_sum(mine.for_results(), Floats(1024, -1)).block.size(), 4 * 34U);
  EXPECT_EQ(encode(codec("signsgd,ternary"), Floats(1024)).block.size(), 4 * 2U);
}

INSTANTIATE_TEST_SUITE_P(Isa, SelectionGolden, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::selection_golden_test
