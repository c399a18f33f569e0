// widths_test.cc - tests of the plan with the fewest bytes within an error, compared with all plans and real encoders
#include "collectives/cost/widths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "compress/codec.h"

namespace gradlane::test::widths_test {
namespace {

using Layers = std::vector<std::vector<WidthCost>>;

// ---- The histogram

std::vector<float> laplace(size_t floats, double scale, unsigned seed) {
  std::mt19937 random(seed);
  std::exponential_distribution<double> size(1);
  std::vector<float> values(floats);
  for (float& each : values) each = static_cast<float>((random() % 2 == 0 ? scale : -scale) * size(random));
  return values;
}

WidthHistogram histogram_of(std::span<const float> floats) {
  WidthHistogram histogram;
  histogram.add(floats);
  return histogram;
}

struct Encoded {
  double bytes = 0;
  double error = 0;
};

Encoded encoded(std::span<const float> floats, int bits) {
  const Codec codec = find_codec("fixed:" + std::to_string(bits), Isa::kScalar);
  std::vector<uint8_t> block(codec.max_bytes(floats.size()));
  const EncodeResult done = codec.encode(floats, block);
  EXPECT_EQ(done.floats, floats.size());
  std::vector<float> decoded(floats.size());
  EXPECT_EQ(codec.decode(std::span(block).first(done.bytes), decoded), Status::kOk);
  Encoded result{static_cast<double>(done.bytes), 0};
  for (size_t i = 0; i < floats.size(); ++i) {
    const double off = static_cast<double>(decoded[i]) - static_cast<double>(floats[i]);
    result.error += off * off;
  }
  return result;
}

TEST(WidthHistogram, ByHand) {
  // fixed:3 has steps of 1/4, so the values are 2, -2, 1 and 0, as 1/8 is a tie. The value 2 needs three planes.
  const std::vector<float> floats = {0.5F, -0.5F, 0.25F, 0.125F};
  const WidthHistogram histogram = histogram_of(floats);
  EXPECT_EQ(histogram.elements(), 4);
  EXPECT_EQ(histogram.largest(), 0.5F);
  EXPECT_DOUBLE_EQ(histogram.squares(), 0.578125);
  EXPECT_DOUBLE_EQ(histogram.fixed(3).bytes, 13);
  EXPECT_DOUBLE_EQ(histogram.fixed(3).error, 3 / 192.0 + 1 / 64.0);
  EXPECT_DOUBLE_EQ(histogram.fixed(1).bytes, 1);  // 0.5 is half a step
  EXPECT_DOUBLE_EQ(histogram.fixed(1).error, 0.578125);
  EXPECT_DOUBLE_EQ(histogram_of(std::vector<float>{-0.25F}).fixed(3).bytes, 5);  // -1 needs one plane
  EXPECT_DOUBLE_EQ(histogram_of(std::vector<float>{0.25F}).fixed(3).bytes, 9);
}

TEST(WidthHistogram, BytesAreThoseOfBlocks) {
  for (const double scale : {1e-4, 1e-3, 0.03, 1.0}) {
    // Floats of 2^15 steps or more travel raw. These are floats from 2^15 2^(1-b) = 16 on if b = 12.
    const std::vector<float> floats = laplace(8191, scale, 3);
    const WidthHistogram histogram = histogram_of(floats);
    for (int bits = 1; bits <= 12; ++bits) {
      EXPECT_EQ(histogram.fixed(bits).bytes, encoded(floats, bits).bytes) << scale << " " << bits;
    }
    for (int bits = 13; bits <= 30; ++bits) {
      const double real = encoded(floats, bits).bytes;
      EXPECT_NEAR(histogram.fixed(bits).bytes, real, 0.06 * real) << scale << " " << bits;
    }
  }
}

TEST(WidthHistogram, ErrorsAreNearThoseOfBlocks) {
  for (const double scale : {1e-4, 1e-3, 0.03}) {
    const std::vector<float> floats = laplace(1 << 15, scale, 4);
    const WidthHistogram histogram = histogram_of(floats);
    for (int bits = 1; bits <= 20; ++bits) {
      const double real = encoded(floats, bits).error;
      EXPECT_NEAR(histogram.fixed(bits).error, real, 0.1 * real) << scale << " " << bits;
    }
  }
}

TEST(WidthHistogram, WhatIsNoUsualFloat) {
  const WidthHistogram nothing;
  EXPECT_EQ(nothing.fixed(10).bytes, 0);
  EXPECT_EQ(nothing.fixed(10).error, 0);
  const WidthHistogram zeros = histogram_of(std::vector<float>(64, 0.0F));
  EXPECT_EQ(zeros.fixed(10).bytes, 1);
  EXPECT_EQ(zeros.fixed(10).error, 0);
  std::vector<float> strange(32, std::numeric_limits<float>::infinity());
  strange[1] = -strange[0];
  strange[2] = std::numeric_limits<float>::quiet_NaN();
  strange[3] = std::numeric_limits<float>::denorm_min();
  strange[4] = std::numeric_limits<float>::max();
  const WidthHistogram histogram = histogram_of(strange);
  EXPECT_EQ(histogram.largest(), std::numeric_limits<float>::max());
  for (int bits = WidthHistogram::kLeastBits - 9; bits <= WidthHistogram::kMostBits + 9; ++bits) {
    EXPECT_TRUE(std::isfinite(histogram.fixed(bits).bytes)) << bits;
    EXPECT_TRUE(std::isfinite(histogram.fixed(bits).error)) << bits;
  }
}

// ---- The plan

Layers random_layers(size_t layers, size_t choices, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> number(1, 1000);
  Layers result(layers);
  for (auto& layer : result) {
    for (size_t i = 0; i < choices; ++i) {
      layer.push_back({static_cast<double>(number(random)), static_cast<double>(number(random))});
    }
  }
  return result;
}

// Returns the fewest bytes of all plans.
double by_trying(const Layers& layers, double allowed, size_t layer = 0, WidthCost sum = {}) {
  if (sum.error > allowed) return std::numeric_limits<double>::infinity();
  if (layer == layers.size()) return sum.bytes;
  double best = std::numeric_limits<double>::infinity();
  for (const WidthCost& each : layers[layer]) {
    best = std::min(best, by_trying(layers, allowed, layer + 1, {sum.bytes + each.bytes, sum.error + each.error}));
  }
  return best;
}

// Returns a lower bound for the bytes of any plan. It holds for every price of error, so the largest one is used.
double bytes_at_least(const Layers& layers, double allowed) {
  double bound = 0;
  for (double price = 1e-30; price < 1e30; price *= 1.2) {
    double sum = -price * allowed;
    for (const auto& layer : layers) {
      double least = std::numeric_limits<double>::infinity();
      for (const WidthCost& each : layer) least = std::min(least, each.bytes + price * each.error);
      sum += least;
    }
    bound = std::max(bound, sum);
  }
  return bound;
}

void check(const Layers& layers, size_t uniform, const WidthPlan& plan) {
  const WidthCost before = uniform_cost(layers, uniform);
  ASSERT_EQ(plan.choices.size(), layers.size());
  WidthCost sum;
  for (size_t i = 0; i < layers.size(); ++i) {
    sum.bytes += layers[i].at(plan.choices[i]).bytes;
    sum.error += layers[i].at(plan.choices[i]).error;
  }
  EXPECT_DOUBLE_EQ(sum.bytes, plan.cost.bytes);
  EXPECT_DOUBLE_EQ(sum.error, plan.cost.error);
  EXPECT_LE(plan.cost.bytes, before.bytes);
  EXPECT_LE(plan.cost.error, before.error * (1 + 1e-12));
}

TEST(PlanWidths, ByHand) {
  // In the first layer a byte saves an error of 3, in the second one of 1/2.
  const Layers layers = {{{40, 90}, {30, 120}, {20, 150}}, {{40, 5}, {30, 10}, {20, 20}, {10, 40}}};
  const WidthPlan plan = plan_widths(layers, 1);
  EXPECT_EQ(plan.choices, (std::vector<size_t>{0, 3}));
  EXPECT_DOUBLE_EQ(plan.cost.bytes, 50);
  EXPECT_DOUBLE_EQ(plan.cost.error, 130);
}

TEST(PlanWidths, AsGoodAsAllPlansTried) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    const Layers layers = random_layers(1 + seed % 6, 2 + seed % 4, seed);
    for (size_t uniform = 0; uniform < layers[0].size(); ++uniform) {
      const WidthPlan plan = plan_widths(layers, uniform);
      check(layers, uniform, plan);
      EXPECT_DOUBLE_EQ(plan.cost.bytes, by_trying(layers, uniform_cost(layers, uniform).error)) << seed;
    }
  }
}

TEST(PlanWidths, NothingToGain) {
  EXPECT_TRUE(plan_widths({}, 0).choices.empty());
  const Layers one = {{{30, 1}, {20, 4}, {10, 16}}};
  EXPECT_EQ(plan_widths(one, 1).choices, std::vector<size_t>{1});
  const Layers zeros(5, {{7, 0}, {7, 0}, {7, 0}});
  // The choices stay unchanged if none is better.
  EXPECT_EQ(plan_widths(zeros, 2).choices, std::vector<size_t>(5, 2));
  // No error is allowed here. A layer of zeros still gets the choice with the fewest bytes.
  const Layers exact = {{{7, 0}, {5, 0}}, {{9, 0}, {3, 1}}};
  EXPECT_EQ(plan_widths(exact, 0).choices, (std::vector<size_t>{1, 0}));
  // All layers are alike. Each doubling of the step saves the same number of bytes.
  const Layers alike(9, {{50, 1}, {40, 4}, {30, 16}, {20, 64}});
  EXPECT_DOUBLE_EQ(plan_widths(alike, 1).cost.bytes, 360);
}

TEST(PlanWidths, NearTheBoundWithManyHugeLayers) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> logarithm(0, 12);
  Layers layers(200);
  for (auto& layer : layers) {
    const double elements = std::pow(10, logarithm(random));
    const double square = std::pow(10, -logarithm(random));
    for (int bits = 1; bits <= 12; ++bits) {
      layer.push_back({elements * bits / 8, elements * square * std::pow(4, -bits)});
    }
  }
  for (const size_t uniform : {2U, 9U}) {
    const WidthPlan plan = plan_widths(layers, uniform);
    check(layers, uniform, plan);
    // Choices are whole bits, so the plan may miss the bound by about one bit of one layer.
    EXPECT_LE(plan.cost.bytes, 1.03 * bytes_at_least(layers, uniform_cost(layers, uniform).error)) << uniform;
  }
}

TEST(PlanWidths, NeitherUnitsNorOrderMatter) {
  Layers layers = random_layers(8, 5, 11);
  const WidthPlan plan = plan_widths(layers, 3);
  Layers scaled = layers;
  for (auto& layer : scaled) {
    for (WidthCost& each : layer) each = {each.bytes * 0x1p20, each.error * 0x1p-60};
  }
  EXPECT_EQ(plan_widths(scaled, 3).choices, plan.choices);
  std::ranges::reverse(layers);
  EXPECT_DOUBLE_EQ(plan_widths(layers, 3).cost.bytes, plan.cost.bytes);
}

// ---- Histogram and plan together: the gain of one step per layer

// Each layer's choices are steps around 2^(1 - bits), or (`relative`) around that share of its largest magnitude.
// Choice kUniform is exactly that step.
constexpr int kAround = 8;
constexpr size_t kUniform = kAround;

Layers layers_of(const std::vector<WidthHistogram>& histograms, int bits, bool relative) {
  Layers layers;
  for (const WidthHistogram& each : histograms) {
    const int own = relative ? bits - std::ilogb(each.largest()) : bits;
    auto& layer = layers.emplace_back();
    for (int more = -kAround; more <= kAround; ++more) layer.push_back(each.fixed(own + more));
  }
  return layers;
}

TEST(PlanWidths, OneStepForAllIsTheBestOne) {
  // At high resolution, one more bit costs and gains the same in every layer if the steps are equal.
  std::vector<WidthHistogram> histograms;
  for (unsigned i = 0; i < 4; ++i) histograms.push_back(histogram_of(laplace(4096, 0.01 * std::pow(4, -1.0 * i), i)));
  for (const int bits : {15, 16, 17}) {
    const Layers absolute = layers_of(histograms, bits, false);
    EXPECT_GE(plan_widths(absolute, kUniform).cost.bytes, 0.99 * uniform_cost(absolute, kUniform).bytes) << bits;
  }
  // Steps that are a share of each layer's largest float spend bits on small layers, which larger layers need more.
  const Layers relative = layers_of(histograms, 8, true);
  EXPECT_LE(plan_widths(relative, kUniform).cost.bytes, 0.8 * uniform_cost(relative, kUniform).bytes);
}

}  // namespace
}  // namespace gradlane::test::widths_test
