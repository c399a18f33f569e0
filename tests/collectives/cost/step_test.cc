// step_test.cc - tests of training steps: buckets, communication hidden behind the backward pass, choices
#include "collectives/cost/step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace gradlane::test::step_test {
namespace {

double elements_of(std::span<const PlanBucket> buckets) {
  double all = 0;
  for (const PlanBucket& each : buckets) all += each.elements;
  return all;
}

TEST(Buckets, HaveAllThereIs) {
  for (const std::string& name : model_names()) {
    const ModelTable model = find_model(name).value();
    const std::vector<PlanBucket> buckets = buckets_of(model);
    EXPECT_EQ(elements_of(buckets), model.elements()) << name;
    EXPECT_EQ(buckets.back().ready, 1) << name;
    double before = 0;
    for (const PlanBucket& each : buckets) {
      EXPECT_GE(each.ready, before) << name;
      before = each.ready;
    }
  }
}

TEST(Buckets, BeginWithASmallOne) {
  const std::vector<PlanBucket> buckets = buckets_of(find_model("resnet50").value());
  ASSERT_EQ(buckets.size(), 5U);
  EXPECT_EQ(buckets[0].elements, 2049000);  // the last layer alone, because it has 2 MiB or more
  EXPECT_GE(buckets[1].elements * 4, 25 * 1048576);
  EXPECT_TRUE(buckets_of({}).empty());
}

// PyTorch 2.13 makes these buckets from its second step on: the gradients of a layer's bias come before its weight's.
TEST(Buckets, AreThoseOfPyTorch) {
  const auto mlp = [](std::initializer_list<double> widths) {
    ModelTable model;
    for (const double* width = widths.begin(); width + 1 != widths.end(); ++width) {
      model.layers.push_back({"weight", width[0] * width[1], 0, 0, width[0] * width[1]});
      model.layers.push_back({"bias", width[1], 0, 0, 0});
    }
    std::vector<double> elements;
    for (const PlanBucket& each : buckets_of(model)) elements.push_back(each.elements);
    return elements;
  };
  EXPECT_EQ(mlp({784, 1536, 1536, 1024, 10}), (std::vector<double>{1584138, 3566592}));
  EXPECT_EQ(mlp({784, 3000, 3000, 3000, 10}), (std::vector<double>{9033010, 9003000, 2355000}));
}

// Returns the step of exchanges on nodes on which only lambda slows down backward.
StepTime step_with(std::span<const PlanBucket> buckets, std::span<const double> seconds, const StepCompute& compute,
                   double lambda) {
  std::vector<ExchangeCost> exchanges;
  for (const double each : seconds) exchanges.push_back({each, each});
  return step_time(buckets, exchanges, compute, {0, lambda});
}

TEST(StepTime, Overlaps) {
  const PlanBucket buckets[] = {{1, 0.5}, {1, 1}};
  const StepCompute compute = {1, 4};
  const double quick[] = {1, 1};
  const StepTime hidden = step_with(buckets, quick, compute, 1);
  EXPECT_DOUBLE_EQ(hidden.step, 1 + 4 + 1);
  EXPECT_DOUBLE_EQ(hidden.exposed, 1);
  EXPECT_DOUBLE_EQ(hidden.hidden, 1);
  const double slow[] = {5, 1};
  EXPECT_DOUBLE_EQ(step_with(buckets, slow, compute, 1).step, 1 + 2 + 5 + 1);
  const double none[] = {0, 0};
  EXPECT_DOUBLE_EQ(step_with(buckets, none, compute, 1.5).step, 5);
}

// Lambda slows the backward pass only while an exchange is in flight.
TEST(StepTime, SlowsBackwardBesideAnExchange) {
  const PlanBucket buckets[] = {{1, 0.5}, {1, 1}};
  const StepCompute compute = {1, 4};
  // The forward pass takes 1 s, then backward runs alone for 2 s. During the exchange of 1 s, backward does 1/1.5 s of
  // work. The rest of the second half follows, and then the last bucket.
  const double quick[] = {1, 1};
  EXPECT_DOUBLE_EQ(step_with(buckets, quick, compute, 1.5).step, 1 + 2 + 1 + (2 - 1 / 1.5) + 1);
  // The second half of backward takes 3 s during the exchange of the first bucket, which takes 5 s.
  const double slow[] = {5, 1};
  EXPECT_DOUBLE_EQ(step_with(buckets, slow, compute, 1.5).step, 1 + 2 + 5 + 1);
  // The bucket that is ready after 1 s of backward is finished before the next one is ready. So both slow down
  // backward, one after the other.
  const PlanBucket three[] = {{1, 0.25}, {1, 0.5}, {1, 1}};
  const double each[] = {0.5, 0.5, 1};
  EXPECT_DOUBLE_EQ(step_with(three, each, compute, 2).step, 1 + 4 + 0.25 + 0.25 + 1);
  // If the last bucket is ready before the end of backward, backward goes on after its exchange.
  const PlanBucket early[] = {{1, 0.5}};
  const double one[] = {1};
  EXPECT_DOUBLE_EQ(step_with(early, one, compute, 4).step, 1 + 4 + 0.75);
}

// Exchanges of 7 ms during 122 ms of backward cost at most 7 ms, whatever lambda is.
TEST(StepTime, CostsNoMoreThanTheExchange) {
  const PlanBucket buckets[] = {{1, 0.2}, {1, 0.6}, {1, 1}};
  const StepCompute compute = {0.061, 0.122};
  const double seconds[] = {1e-3, 5e-3, 1e-3};
  for (const double lambda : {1.0, 1.3, 2.0, 1000.0}) {
    const StepTime time = step_with(buckets, seconds, compute, lambda);
    EXPECT_NEAR(time.exposed, 6e-3 * (1 - 1 / lambda) + 1e-3, 1e-12);
    EXPECT_LE(time.exposed, time.exchange * (1 + 1e-12));
  }
}

// All buckets are equal, and all but the last one are ready at the beginning. If their exchanges take longer than
// lambda times backward, the time is that of MLSys' formula. Otherwise it is at most that.
TEST(StepTime, MeetsThatOfMlsys) {
  const PlanBucket buckets[] = {{1, 0}, {1, 0}, {1, 0}, {1, 1}};
  constexpr double kLambda = 1.1;
  for (const double bucket : {0.1, 1.0, 5.5 / 3, 2.0, 3.0, 10.0}) {
    const double seconds[] = {bucket, bucket, bucket, bucket};
    const double step = step_with(buckets, seconds, {0, 5}, kLambda).step;
    EXPECT_DOUBLE_EQ(step, std::max(5 + (1 - 1 / kLambda) * 3 * bucket, 3 * bucket) + bucket);
    const double published = std::max(kLambda * 5, 3 * bucket) + bucket;
    EXPECT_LE(step, published * (1 + 1e-12));
    if (3 * bucket >= kLambda * 5) {
      EXPECT_DOUBLE_EQ(step, published);
    }
  }
}

// With enough cores, nothing slows down.
TEST(StepTime, ManyCores) {
  const PlanBucket buckets[] = {{1, 0.3}, {1, 0.7}, {1, 1}};
  const double seconds[] = {2, 0.5, 1};
  const ExchangeCost exchanges[] = {{2, 2}, {0.5, 0.1}, {1, 3}};
  EXPECT_DOUBLE_EQ(step_time(buckets, exchanges, {1, 4}, {4, 1.3}).step, step_with(buckets, seconds, {1, 4}, 1).step);
}

// If an exchange is busy all the time, and so is backward, one core is used for one of them at a time.
TEST(StepTime, OneCoreHidesNothing) {
  const PlanBucket buckets[] = {{1, 0.25}, {1, 0.5}, {1, 1}};
  const ExchangeCost exchanges[] = {{2, 2}, {0.5, 0.5}, {1, 1}};
  const StepTime time = step_time(buckets, exchanges, {1, 4}, {1, 1});
  EXPECT_DOUBLE_EQ(time.step, 1 + 4 + 3.5);
  EXPECT_DOUBLE_EQ(time.hidden, 0);
  // Half a core for each node: times are those of such nodes.
  const ExchangeCost half[] = {{2, 1}, {0.5, 0.25}, {1, 0.5}};
  EXPECT_DOUBLE_EQ(step_time(buckets, half, {1, 4}, {0.5, 1}).step, 1 + 4 + 3.5);
}

// An exchange that wants less than half of the core gets it, and backward gets the rest.
TEST(StepTime, SharesFairly) {
  const PlanBucket buckets[] = {{1, 0}, {1, 1}};
  // Backward runs at 0.75 for 2 s, and does the rest in 2.5 s. The last bucket runs alone.
  const ExchangeCost light[] = {{2, 0.5}, {1, 0}};
  EXPECT_DOUBLE_EQ(step_time(buckets, light, {0, 4}, {1, 1}).step, 2 + 2.5 + 1);
  // The exchange wants 0.8 of the core, and backward all of it. Each gets half, so the exchange takes 3.2 s instead
  // of 2.
  const ExchangeCost heavy[] = {{2, 1.6}, {1, 0}};
  EXPECT_DOUBLE_EQ(step_time(buckets, heavy, {0, 4}, {1, 1}).step, 3.2 + (4 - 1.6) + 1);
  // With 1.6 cores, backward gets its 0.8 of a core. The exchange wants 2 and gets 0.8, too.
  const ExchangeCost two[] = {{1, 2}, {1, 0}};
  EXPECT_DOUBLE_EQ(step_time(buckets, two, {0, 4}, {1.6, 1}).step, 2.5 + (4 - 2) + 1);
}

// Work is neither lost nor done twice: as long as both want the core, it is busy.
TEST(StepOverhead, GrowsWithComputingAndBytesWhereCoresAreShared) {
  const std::vector<PlanBucket> buckets = {{1e6, 0.5}, {1e6, 1}};  // 8 MB
  const StepCompute compute = {1, 3};
  EXPECT_EQ(step_overhead(buckets, compute, {0, 1.2}), 0) << "nothing is known of the cores";
  const double copies = step_overhead(buckets, compute, {2, 1});
  EXPECT_GT(copies, 0);
  EXPECT_EQ(step_overhead(buckets, {0, 0}, {1, 1}), copies) << "a core is enough for a trainer";
  EXPECT_DOUBLE_EQ(step_overhead(buckets, {0, 0}, {0.5, 1}), 2 * copies);
  const double more = step_overhead(buckets, {2, 6}, {1, 1}) - copies;
  EXPECT_DOUBLE_EQ(more, 2 * (step_overhead(buckets, compute, {1, 1}) - copies));
}

TEST(StepTime, KeepsTheCoreBusy) {
  const PlanBucket buckets[] = {{1, 0}, {1, 0.1}, {1, 0.2}, {1, 1}};
  for (const double share : {0.1, 0.4, 0.6, 1.0}) {
    const ExchangeCost exchanges[] = {{1, share}, {1, share}, {1, share}, {0, 0}};
    const StepTime time = step_time(buckets, exchanges, {0, 10}, {1, 1});
    EXPECT_NEAR(time.step, 10 + 3 * share, 1e-9) << share;
    EXPECT_LE(time.exposed, time.exchange * (1 + 1e-12));
  }
}

struct DefaultOptions {
  Calibration calibration = usual_calibration(PlanPort::kCard);
  std::vector<PlanBucket> buckets = buckets_of(find_model("resnet50").value());
  StepCompute compute = {0.061, 0.122};
  std::vector<StrategyId> ways = find_strategies("ring,direct");

  explicit DefaultOptions(double gbps) { calibration.link.bandwidth = gbps * 1e9 / 8; }
  [[nodiscard]] double step(const CodecCost& codec) const {
    const CodecCost* const one[] = {&codec};
    return plan_step(calibration, one, buckets, compute, 4, ways).time.step;
  }
  // Returns ratio_enough() for a codec that takes no time.
  [[nodiscard]] std::optional<double> enough() const {
    const auto smaller = [this](double ratio) {
      CodecCost codec;
      codec.bytes = 4 / ratio;
      return step(codec);
    };
    return ratio_enough(smaller, 1.1 * compute.seconds());
  }
  StepPlan plan(std::initializer_list<const char*> names) const {
    std::vector<const CodecCost*> codecs;
    for (const char* name : names) codecs.push_back(calibration.find(name));
    return plan_step(calibration, codecs, buckets, compute, 4, ways);
  }
};

TEST(PlanStep, ChoosesTheBestForEachBucket) {
  const DefaultOptions setting(1);
  const double raw = setting.plan({"raw"}).time.step;
  const double fixed = setting.plan({"fixed:10"}).time.step;
  const StepPlan best = setting.plan({"raw", "fixed:10"});
  EXPECT_LT(fixed, raw / 1.5);
  EXPECT_LE(best.time.step, fixed);
  EXPECT_EQ(best.choices.size(), setting.buckets.size());
  EXPECT_EQ(setting.plan({"raw"}).sum.limit, PlanLimit::kLink);
}

// A plan without compression uses no core, so it does not slow down backward.
TEST(PlanStep, PlainPaysNoLambda) {
  DefaultOptions setting(1);
  setting.calibration.lambda = 30;
  setting.calibration = ideal_calibration(setting.calibration);
  const StepPlan plan = setting.plan({"raw"});
  setting.calibration.lambda = 1;
  EXPECT_DOUBLE_EQ(plan.time.step, setting.plan({"raw"}).time.step);
}

TEST(PlanStep, RatioThatIsEnough) {
  const DefaultOptions slow(1);
  const double ratio = slow.enough().value();
  EXPECT_GT(ratio, 4);
  EXPECT_LT(ratio, 40);
  DefaultOptions fast(100);
  fast.calibration.lambda = 1;
  fast.calibration.lanes = 8;
  EXPECT_EQ(fast.enough(), 1);
  DefaultOptions far(1);
  far.calibration.link.latency = 1;
  EXPECT_FALSE(far.enough());
}

TEST(PlanStep, RatesThatPay) {
  using Kind = PlanRates::Kind;
  DefaultOptions setting(1);
  setting.calibration.lanes = 16;
  const auto rates = [&setting](const CodecCost& codec) {
    const auto at = [&setting](const CodecCost& one) {
      return [setting, one](double rate) mutable {
        setting.calibration.link.bandwidth = rate;
        return setting.step(one);
      };
    };
    return rates_that_pay(at(*setting.calibration.find("raw")), at(codec));
  };
  const PlanRates below = rates(*setting.calibration.find("fixed:10"));
  EXPECT_EQ(below.kind, Kind::kBelow);
  EXPECT_GT(below.rate, 0.5e9);
  EXPECT_LT(below.rate, 10e9);
  // This codec is no smaller than raw and costs more time. It does not pay with any link.
  CodecCost dear = *setting.calibration.find("raw");
  dear.encode_ns = dear.merge_ns = dear.decode_ns = 100;
  EXPECT_EQ(rates(dear).kind, Kind::kNowhere);
  // Each packet takes so long that a codec, which sends fewer packets, is worth it with any link.
  setting.calibration.packets.send_ns = setting.calibration.packets.receive_ns = 1e5;
  EXPECT_EQ(rates(*setting.calibration.find("fixed:10")).kind, Kind::kAlways);
}

}  // namespace
}  // namespace gradlane::test::step_test
