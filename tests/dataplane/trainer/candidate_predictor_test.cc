// candidate_predictor_test.cc - the choices of `auto` on a node, and figures and log lines from the reports of trainers
#include "dataplane/trainer/candidate_predictor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <set>
#include <string>

#include "client/gradlane.h"
#include "config/choices.h"
#include "config/loader.h"
#include "dataplane/trainer/choice_reports.h"

namespace gradlane::test::ways_test {
namespace {

NodeConfig config_of(const std::string& strategies, unsigned nodes = 4) {
  std::string text = "rank: 0\nports: [{udp: auto}]\nnodes: [";
  for (unsigned i = 0; i < nodes; ++i) {
    text += "{rank: " + std::to_string(i) + ", ip: 10.0.0." + std::to_string(i + 1) + "}, ";
  }
  return parse_config(text + "]\nstrategies: " + strategies + "\n", "test");
}

std::vector<gl_way_row> rows_of(const NodeConfig& config, unsigned mbps = 1000) {
  return candidates_of(config, figures_of(config), mbps);
}

const gl_way_row* find(const std::vector<gl_way_row>& rows, const std::string& name, uint32_t strategy) {
  const auto found =
      std::ranges::find_if(rows, [&](const gl_way_row& row) { return row.name == name && row.strategy == strategy; });
  return found == rows.end() ? nullptr : &*found;
}

const uint32_t kRing = StrategyId{}.code();

TEST(Ways, OfTheRingAlone) {
  const auto rows = rows_of(config_of("[ring]"));
  ASSERT_FALSE(rows.empty());
  EXPECT_STREQ(static_cast<const char*>(rows[0].name), "raw");
  for (const gl_way_row& row : rows) {
    EXPECT_EQ(row.strategy, kRing);
    EXPECT_STRNE(static_cast<const char*>(row.name), "int8") << "it does not add";
    EXPECT_EQ(std::string(static_cast<const char*>(row.name)).find("rel="), std::string::npos) << "ranks have no links";
    for (unsigned i = 1; i < GL_SIZES; ++i) EXPECT_GE(row.ns[i], row.ns[i - 1]);
  }
  const gl_way_row* const pack = find(rows, "pack", kRing);
  ASSERT_NE(pack, nullptr);
  EXPECT_EQ(pack->bound, GL_BOUND_EXACT);
  const gl_way_row* const fixed = find(rows, "fixed:10", kRing);
  ASSERT_NE(fixed, nullptr);
  EXPECT_EQ(fixed->bound, GL_BOUND_ABSOLUTE);
  EXPECT_EQ(fixed->bits, 10);
  EXPECT_EQ(fixed->scales, 1);
  const gl_way_row* const bf16 = find(rows, "bf16", kRing);
  ASSERT_NE(bf16, nullptr);
  EXPECT_EQ(bf16->bound, GL_BOUND_RELATIVE);
  EXPECT_EQ(bf16->bits, 8);
}

TEST(Ways, OfSeveralStrategies) {
  const auto rows = rows_of(config_of("[direct, ring, rings:2, aggregator:0]"));
  EXPECT_LE(rows.size(), GL_MAX_WAYS);
  EXPECT_EQ(rows[0].strategy, find_strategy("direct").code());
  EXPECT_NE(find(rows, "int8", find_strategy("direct").code()), nullptr);
  EXPECT_EQ(find(rows, "int8", kRing), nullptr);
  EXPECT_NE(find(rows, "fixed:rel=10", kRing), nullptr) << "there are links between all";
  std::set<uint32_t> strategies;
  for (const gl_way_row& row : rows) strategies.insert(row.strategy);
  EXPECT_EQ(strategies.size(), 4U);
}

// Compression is predicted to win on slow links.
TEST(Ways, PredictionsFollowTheLink) {
  const NodeConfig config = config_of("[ring]");
  const auto slow = rows_of(config, 100);
  constexpr unsigned kMiB = 20 - GL_LEAST_SIZE;
  EXPECT_LT(2 * find(slow, "fixed:10", kRing)->ns[kMiB], find(slow, "raw", kRing)->ns[kMiB]);
  EXPECT_LT(find(rows_of(config, 10000), "raw", kRing)->ns[kMiB], find(slow, "raw", kRing)->ns[kMiB]);
}

TEST(Ways, Bounds) {
  EXPECT_EQ(error_bound(find_codec("raw")).bound, GL_BOUND_EXACT);
  EXPECT_EQ(error_bound(find_codec("fixed:7")).bits, 7U);
  EXPECT_EQ(error_bound(find_codec("fixed:rel=9")).bound, GL_BOUND_RELATIVE);
  EXPECT_EQ(error_bound(find_codec("fixed:rel=9")).bits, 9U);
  EXPECT_EQ(error_bound(find_codec("int8")).bits, 7U);
  EXPECT_EQ(error_bound(find_codec("fp16")).bits, 0U) << "small and large floats keep none";
  EXPECT_EQ(error_bound(find_codec("signsgd")).bits, 0U);
}

gl_report_row report() {
  gl_report_row row{};
  row.version = 1;
  row.strategy = kRing;
  row.size = 20;
  row.operations = 100;
  row.bytes = 100 << 20;
  row.sent_bytes = 20'000'000;
  row.predicted = 3;
  row.measured = 2;
  row.baseline = 10;
  std::strcpy(static_cast<char*>(row.asked), "auto:2^-10");
  std::strcpy(static_cast<char*>(row.codec), "fixed:10");
  return row;
}

TEST(ChoiceReports, AsFigures) {
  const auto all = plan_figures({{3, {report()}}});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].rank, 3U);
  EXPECT_EQ(all[0].from, 1U << 20);
  EXPECT_EQ(all[0].strategy, "ring");
  EXPECT_NEAR(all[0].saved_ms, 838.86, 0.01);
  EXPECT_EQ(plan_line(all[0]),
            "all_reduce of float32, 1MiB to 2MiB, codec auto:2^-10: fixed:10 by ring, 2 ns per byte (predicted 3); raw "
            "takes 10; saves 8.39 ms per MiB; 104.9 MB of tensors so far, 20 MB sent");
}

TEST(ChoiceReports, OnceForEachChoice) {
  ReportWatch watch;
  gl_report_row row = report();
  Nanos now = kSecond;
  EXPECT_EQ(watch.look(plan_figures({{0, {row}}}), now).size(), 1U);
  row.operations = 200;
  row.measured = 2.5;
  EXPECT_TRUE(watch.look(plan_figures({{0, {row}}}), now).empty());
  std::strcpy(static_cast<char*>(row.codec), "raw");
  row.exact = 1;
  row.reason = GL_REASON_SLOWER;
  std::strcpy(static_cast<char*>(row.rival), "fixed:10");
  row.rival_strategy = kRing;
  EXPECT_TRUE(watch.look(plan_figures({{0, {row}}}), now).empty()) << "so soon";
  now += 10 * kSecond;
  const auto lines = watch.look(plan_figures({{0, {row}}}), now);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_FALSE(lines[0].warning);
  EXPECT_NE(lines[0].text.find("exact: fixed:10 by ring takes longer"), std::string::npos) << lines[0].text;
}

// A trainer may write any names, but causes only a few lines. Lines about other trainers are still logged. A new
// trainer of a rank counts as another trainer.
TEST(ChoiceReports, OfManyNames) {
  ReportWatch watch;
  size_t lines = 0;
  for (unsigned i = 0; i < 1000; ++i) {
    std::vector<gl_report_row> rows;
    for (unsigned n = 0; n < GL_MAX_REPORTS; ++n) {
      rows.push_back(report());
      (void)std::snprintf(static_cast<char*>(rows.back().asked), GL_NAME, "auto %u", i * GL_MAX_REPORTS + n);
      (void)std::snprintf(static_cast<char*>(rows.back().codec), GL_NAME, "codec %u", i);
    }
    lines += watch.look(plan_figures({{0, rows}}), i * kMillisecond * 100).size();
  }
  EXPECT_LE(lines, 100 / 10 * GL_MAX_REPORTS);
  EXPECT_EQ(watch.look(plan_figures({{1, {report()}}}), kSecond).size(), 1U);
  EXPECT_TRUE(watch.look({}, kSecond).empty());
  EXPECT_EQ(watch.look(plan_figures({{1, {report()}}}), kSecond).size(), 1U);
}

// A configured codec that has no effect causes a warning if it may have been meant for this type.
TEST(ChoiceReports, Warnings) {
  const auto warns = [](uint8_t reason, uint8_t type) {
    gl_report_row row = report();
    row.exact = 1;
    row.reason = reason;
    row.type = type;
    ReportWatch watch;
    const Nanos now = kSecond;
    const auto lines = watch.look(plan_figures({{0, {row}}}), now);
    return !lines.empty() && lines[0].warning;
  };
  EXPECT_TRUE(warns(GL_REASON_TYPE, GRADLANE_FLOAT64));
  EXPECT_FALSE(warns(GL_REASON_TYPE, GRADLANE_INT64));
  EXPECT_TRUE(warns(GL_REASON_NO_CODEC, GRADLANE_FLOAT32));
  EXPECT_FALSE(warns(GL_REASON_EXACT, GRADLANE_FLOAT32));
  EXPECT_FALSE(warns(GL_REASON_TRYING, GRADLANE_FLOAT32));
}

// A trainer may write anything into its reports.
TEST(ChoiceReports, Hostile) {
  gl_report_row row;
  std::memset(&row, 0xff, sizeof(row));
  EXPECT_TRUE(plan_figures({{0, {row}}}).empty());
  row.kind = 0;
  row.type = 0;
  row.size = 40;
  row.measured = std::numeric_limits<double>::quiet_NaN();
  row.baseline = std::numeric_limits<double>::infinity();
  const auto all = plan_figures({{0, {row}}});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].measured, 0);
  EXPECT_EQ(all[0].asked, std::string(GL_NAME, '?'));
  EXPECT_FALSE(plan_line(all[0]).empty());
  EXPECT_TRUE(reports_of(nullptr, 0).empty());
}

}  // namespace
}  // namespace gradlane::test::ways_test
