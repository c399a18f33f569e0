// plans_test.cc - tests of `auto` with a plan: its rows choose codec and strategy of operations
#include <cstring>
#include <string>
#include <vector>

#include "tests/client/choices_fixture.h"

namespace gradlane::test::plans_test {
namespace {

using namespace choices_fixture;

class Plans : public Choices {};

gl_plan_row plan_row(uint64_t from, uint64_t to, uint32_t strategy, unsigned bits) {
  gl_plan_row row{};
  row.from = from;
  row.to = to;
  row.strategy = strategy;
  row.bound = bits == 0 ? GL_BOUND_EXACT : GL_BOUND_ABSOLUTE;
  row.bits = static_cast<uint8_t>(bits);
  const std::string name = bits == 0 ? "raw" : "fixed:" + std::to_string(bits);
  std::strncpy(static_cast<char*>(row.codec), name.c_str(), GL_NAME - 1);
  return row;
}
constexpr uint64_t kAnySize = uint64_t{1} << 40;

// The plan also chooses for the very first operation.
TEST_F(Plans, APlanChoosesInPlaceOfTrials) {
  const gl_plan_row row = plan_row(0, kAnySize, kDirect, 8);
  open({.world = 2, .codec = "raw", .ways = fake_candidates(), .plan = {row}, .worked = fast_fixed});
  reduce(10);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(own()[i].codec, kFixed);
    EXPECT_EQ(own()[i].strategy, kDirect);
  }
  EXPECT_EQ(internals(), 1U);
  EXPECT_EQ(daemon_->reports().at(0).reason, GL_REASON_PLAN);
  // With a plan, an operation that must be exact still gets an exact codec.
  how_.codec = "auto";
  reduce(10);
  EXPECT_EQ(own().back().codec, kRaw);
  EXPECT_EQ(own().back().strategy, kDirect);
}

// Rows of a plan may also begin and end inside a size class.
TEST_F(Plans, APlanGoesByTheSizeOfEachOperation) {
  const std::vector<gl_plan_row> plan = {plan_row(0, 100'000, kDirect, 0), plan_row(100'000, 130'000, kRing, 8)};
  open({.world = 2, .codec = "raw", .ways = fake_candidates(), .plan = plan, .worked = fast_fixed});
  for (int i = 0; i < 4; ++i) {
    reduce(1, 20'000);
    reduce(1, 30'000);
  }
  reduce(1, 32'700);
  const auto seen = own();
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(seen[i].codec, i % 2 == 0 ? kRaw : kFixed) << i;
    EXPECT_EQ(seen[i].strategy, i % 2 == 0 ? kDirect : kRing) << i;
  }
  EXPECT_EQ(seen[8].codec, kRaw) << "no row";
  const auto reports = daemon_->reports();
  ASSERT_EQ(reports.size(), 3U);
  EXPECT_EQ(reports[1].operations, 4U);
  EXPECT_EQ(reports[2].reason, GL_REASON_NO_PLAN);
}

// The plan's codec is used for every bound that it keeps. For any other bound, only its strategy is used.
TEST_F(Plans, APlanKeepsTheBound) {
  const gl_plan_row row = plan_row(0, kAnySize, kDirect, 10);
  open({.world = 2, .codec = "raw", .ways = fake_candidates(), .plan = {row}, .worked = fast_fixed});
  reduce();
  EXPECT_EQ(own().back().codec_arguments, 10U) << "2^-8 was asked for";
  for (const char* const name : {"auto:2^-11", "auto:rel=8"}) {
    how_.codec = name;
    reduce();
    EXPECT_EQ(own().back().codec, kRaw) << name;
    EXPECT_EQ(own().back().strategy, kDirect) << name;
    EXPECT_EQ(daemon_->reports().back().reason, GL_REASON_ROUNDS) << name;
  }
  how_.codec = "fixed:7";
  how_.strategy = "auto";
  reduce();
  EXPECT_EQ(own().back().codec_arguments, 7U);
  EXPECT_EQ(own().back().strategy, kDirect);
  how_.codec = "auto:2^-8";
  how_.strategy = "ring";
  reduce();
  EXPECT_EQ(own().back().strategy, kRing) << "is named, and not the plan's";
  EXPECT_EQ(own().back().codec, kRaw);
}

}  // namespace
}  // namespace gradlane::test::plans_test
