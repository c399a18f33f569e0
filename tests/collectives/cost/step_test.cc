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

TEST(StepTime, Overlaps) {
  const PlanBucket buckets[] = {{1, 0.5}, {1, 1}};
  const StepCompute compute = {1, 4};
  const double quick[] = {1, 1};
  const StepTime hidden = step_time(buckets, quick, compute, 1);
  EXPECT_DOUBLE_EQ(hidden.step, 1 + 4 + 1);
  EXPECT_DOUBLE_EQ(hidden.exposed, 1);
  EXPECT_DOUBLE_EQ(hidden.hidden, 1);
  const double slow[] = {5, 1};
  EXPECT_DOUBLE_EQ(step_time(buckets, slow, compute, 1).step, 1 + 2 + 5 + 1);
  const double none[] = {0, 0};
  EXPECT_DOUBLE_EQ(step_time(buckets, none, compute, 1.5).step, 5);
}

// Lambda slows the backward pass only while an exchange is in flight.
TEST(StepTime, SlowsBackwardBesideAnExchange) {
  const PlanBucket buckets[] = {{1, 0.5}, {1, 1}};
  const StepCompute compute = {1, 4};
  // The forward pass takes 1 s, then backward runs alone for 2 s. During the exchange of 1 s, backward does 1/1.5 s of
  // work. The rest of the second half follows, and then the last bucket.
  const double quick[] = {1, 1};
  EXPECT_DOUBLE_EQ(step_time(buckets, quick, compute, 1.5).step, 1 + 2 + 1 + (2 - 1 / 1.5) + 1);
  // The second half of backward takes 3 s during the exchange of the first bucket, which takes 5 s.
  const double slow[] = {5, 1};
  EXPECT_DOUBLE_EQ(step_time(buckets, slow, compute, 1.5).step, 1 + 2 + 5 + 1);
  // The bucket that is ready after 1 s of backward is finished before the next one is ready. So both slow down
  // backward, one after the other.
  const PlanBucket three[] = {{1, 0.25}, {1, 0.5}, {1, 1}};
  const double each[] = {0.5, 0.5, 1};
  EXPECT_DOUBLE_EQ(step_time(three, each, compute, 2).step, 1 + 4 + 0.25 + 0.25 + 1);
  // If the last bucket is ready before the end of backward, backward goes on after its exchange.
  const PlanBucket early[] = {{1, 0.5}};
  const double one[] = {1};
  EXPECT_DOUBLE_EQ(step_time(early, one, compute, 4).step, 1 + 4 + 0.75);
}

// Exchanges of 7 ms during 122 ms of backward cost at most 7 ms, whatever lambda is.
TEST(StepTime, CostsNoMoreThanTheExchange) {
  const PlanBucket buckets[] = {{1, 0.2}, {1, 0.6}, {1, 1}};
  const StepCompute compute = {0.061, 0.122};
  const double seconds[] = {1e-3, 5e-3, 1e-3};
  for (const double lambda : {1.0, 1.3, 2.0, 1000.0}) {
    const StepTime time = step_time(buckets, seconds, compute, lambda);
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
    const double step = step_time(buckets, seconds, {0, 5}, kLambda).step;
    EXPECT_DOUBLE_EQ(step, std::max(5 + (1 - 1 / kLambda) * 3 * bucket, 3 * bucket) + bucket);
    const double published = std::max(kLambda * 5, 3 * bucket) + bucket;
    EXPECT_LE(step, published * (1 + 1e-12));
    if (3 * bucket >= kLambda * 5) {
      EXPECT_DOUBLE_EQ(step, published);
    }
  }
}

struct DefaultOptions {
  Calibration calibration = usual_calibration(PlanPort::kCard);
  std::vector<PlanBucket> buckets = buckets_of(find_model("resnet50").value());
  StepCompute compute = {0.061, 0.122};
  std::vector<StrategyId> ways = find_strategies("ring,direct");

  explicit DefaultOptions(double gbps) { calibration.link.bandwidth = gbps * 1e9 / 8; }
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
  setting.calibration = plain_calibration(setting.calibration);
  const StepPlan plan = setting.plan({"raw"});
  setting.calibration.lambda = 1;
  EXPECT_DOUBLE_EQ(plan.time.step, setting.plan({"raw"}).time.step);
}

TEST(PlanStep, RatioThatIsEnough) {
  const DefaultOptions slow(1);
  const double ratio = ratio_enough(slow.calibration, slow.buckets, slow.compute, 4, slow.ways).value();
  EXPECT_GT(ratio, 4);
  EXPECT_LT(ratio, 40);
  DefaultOptions fast(100);
  fast.calibration.lambda = 1;
  fast.calibration.lanes = 8;
  EXPECT_EQ(ratio_enough(fast.calibration, fast.buckets, fast.compute, 4, fast.ways), 1);
  DefaultOptions far(1);
  far.calibration.link.latency = 1;
  EXPECT_FALSE(ratio_enough(far.calibration, far.buckets, far.compute, 4, far.ways));
}

TEST(PlanStep, RatesThatPay) {
  using Kind = PlanRates::Kind;
  DefaultOptions setting(1);
  setting.calibration.lanes = 16;
  const auto rates = [&setting](const CodecCost& codec) {
    const CodecCost* const one[] = {&codec};
    return rates_that_pay(setting.calibration, *setting.calibration.find("raw"), one, setting.buckets, setting.compute,
                          4, setting.ways);
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
  const PlanRates always = rates(*setting.calibration.find("fixed:10"));
  EXPECT_EQ(always.kind, Kind::kAlways);
  EXPECT_EQ(always.limit, PlanLimit::kPackets);
}

}  // namespace
}  // namespace gradlane::test::step_test
