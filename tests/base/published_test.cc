// published_test.cc - tests that a reader in another thread never sees a half-written value
#include "base/published.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <stop_token>
#include <thread>

namespace gradlane::test::published_test {
namespace {

struct Figures {
  uint8_t first = 7;
  std::array<uint32_t, 21> all{};
  bool operator==(const Figures&) const = default;
};

TEST(Published, IsTheDefaultBeforeTheFirstWrite) { EXPECT_EQ(Published<Figures>().read(), Figures{}); }

TEST(Published, ReadersSeeWholeValuesInOrder) {
  Published<Figures> published;
  const std::jthread writer([&published](const std::stop_token& stop) {
    Figures figures;
    while (!stop.stop_requested()) {
      figures.all.fill(figures.all[0] + 1);
      published.write(figures);
    }
  });
  uint32_t last = 0;
  unsigned changes = 0;
  while (changes < 100) {
    const Figures figures = published.read();
    const uint32_t now = figures.all[0];
    ASSERT_TRUE(std::ranges::all_of(figures.all, [now](uint32_t it) { return it == now; }));
    ASSERT_GE(now, last);
    changes += now != last;
    last = now;
  }
}

}  // namespace
}  // namespace gradlane::test::published_test
