// counter_set_test.cc - tests of counters that an enum numbers: names, counting, published values
#include "base/counter_set.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gradlane::test::counter_set_test {

enum class Bird : uint8_t { kFinch, kOwl, kHeron, kCount };
inline constexpr CounterRow<Bird> kBirdRows[] = {
    {Bird::kFinch, "finch", "finches seen"},
    {Bird::kOwl, "owl_2", "owls heard"},
    {Bird::kHeron, "heron", "herons"},
};
static_assert(is_complete(kBirdRows));
constexpr const auto& counter_rows(Bird) noexcept { return kBirdRows; }

namespace {

constexpr CounterRow<Bird> kShort[] = {{Bird::kFinch, "finch", "x"}, {Bird::kOwl, "owl", "x"}};
static_assert(!is_complete(kShort));
constexpr CounterRow<Bird> kSwapped[] = {
    {Bird::kOwl, "owl", "x"}, {Bird::kFinch, "finch", "x"}, {Bird::kHeron, "heron", "x"}};
static_assert(!is_complete(kSwapped));
constexpr CounterRow<Bird> kAlike[] = {
    {Bird::kFinch, "finch", "x"}, {Bird::kOwl, "owl", "x"}, {Bird::kHeron, "owl", "x"}};
static_assert(!is_complete(kAlike));
constexpr CounterRow<Bird> kCapital[] = {
    {Bird::kFinch, "finch", "x"}, {Bird::kOwl, "Owl", "x"}, {Bird::kHeron, "heron", "x"}};
static_assert(!is_complete(kCapital));
constexpr CounterRow<Bird> kTextless[] = {
    {Bird::kFinch, "finch", "x"}, {Bird::kOwl, "owl", ""}, {Bird::kHeron, "heron", "x"}};
static_assert(!is_complete(kTextless));

// Returns the names, values and help texts of a snapshot, in order.
std::string text_of(const CounterSnapshot<Bird>& published) {
  std::string text;
  published.for_each([&text](const CounterValue& each) {
    text += std::string(each.name) + "=" + std::to_string(each.value) + " (" + each.help + ") ";
  });
  return text;
}

TEST(CounterSet, NamesAndTexts) {
  static_assert(kCounterCount<Bird> == 3);
  EXPECT_STREQ(counter_name(Bird::kOwl), "owl_2");
  EXPECT_STREQ(counter_help(Bird::kHeron), "herons");
  std::vector<std::string> names;
  for_each_counter<Bird>([&names](const auto& row) { names.emplace_back(row.name); });
  EXPECT_EQ(names, (std::vector<std::string>{"finch", "owl_2", "heron"}));
}

TEST(CounterSet, Counts) {
  CounterSet<Bird> birds;
  birds.add(Bird::kFinch);
  birds.add(Bird::kFinch, 41);
  birds.set(Bird::kHeron, 7);
  EXPECT_EQ(birds[Bird::kFinch], 42U);
  EXPECT_EQ(birds[Bird::kOwl], 0U);
  EXPECT_EQ(birds[Bird::kHeron], 7U);
}

TEST(CounterSet, OthersReadWhatWasPublished) {
  CounterSet<Bird> birds;
  CounterSnapshot<Bird> published;
  birds.add(Bird::kOwl, ~uint64_t{0});
  EXPECT_EQ(text_of(published), "finch=0 (finches seen) owl_2=0 (owls heard) heron=0 (herons) ");
  published.publish(birds);
  birds.add(Bird::kFinch);
  EXPECT_EQ(text_of(published), "finch=0 (finches seen) owl_2=18446744073709551615 (owls heard) heron=0 (herons) ");
  EXPECT_EQ(published[Bird::kFinch], 0U);
  published.publish(birds);
  EXPECT_EQ(published[Bird::kFinch], 1U);
}

TEST(CounterSet, IsDueEveryInterval) {
  CounterSnapshot<Bird> published;
  EXPECT_TRUE(published.due(5 * kSecond));
  EXPECT_FALSE(published.due(5 * kSecond));
  EXPECT_FALSE(published.due(5 * kSecond + 100 * kMillisecond - 1));
  EXPECT_TRUE(published.due(5 * kSecond + 100 * kMillisecond));
}

}  // namespace
}  // namespace gradlane::test::counter_set_test
