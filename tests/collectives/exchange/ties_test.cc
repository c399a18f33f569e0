// ties_test.cc - tests that tied votes have the same result, whatever packets carried the sums
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/random.h"
#include "tests/collectives/exchange/exchange_fixture.h"

namespace gradlane::test::ties_test {
namespace {

constexpr size_t kCount = 100'000;

// Returns the result of votes of random signs. A third of them or more are ties.
std::vector<float> result(unsigned world, const char* strategy, size_t mtu, double loss) {
  SimConfig config;
  config.nodes = world;
  config.topology = SimTopology::kSwitch;
  config.exchange.strategies = {find_strategy(strategy)};
  config.exchange.max_bytes = kCount * sizeof(float);
  config.exchange.mtu = mtu;
  SimNet net(config);
  for (unsigned from = 0; from < world; ++from) {
    for (unsigned to = 0; to < world; ++to) {
      if (from != to) net.set_faults(from, to, {.loss = loss});
    }
  }
  std::vector<std::vector<float>> data(world, std::vector<float>(kCount));
  for (unsigned rank = 0; rank < world; ++rank) {
    Random random(rank + 1);
    for (float& it : data[rank]) it = random.below(2) == 0 ? 1.0F : -1.0F;
    Operation operation;
    operation.count = kCount;
    operation.data = data[rank].data();
    operation.codec = find_codec("signsgd");
    (void)net.submit(rank, operation);
  }
  EXPECT_TRUE(net.run_until_idle(60 * kSecond));
  EXPECT_TRUE(all_succeeded(net));
  for (unsigned rank = 1; rank < world; ++rank) {
    EXPECT_EQ(std::memcmp(data[rank].data(), data[0].data(), kCount * sizeof(float)), 0);
  }
  return data[0];
}

// The sum of a long run of votes can be longer than a packet. Then each part of it is turned into a result separately.
TEST(Ties, FallAlikeHoweverPacketsWereCut) {
  for (const unsigned world : {2U, 4U}) {
    for (const char* const strategy : {"ring", "direct"}) {
      const std::vector<float> clean = result(world, strategy, 548, 0);
      for (const size_t mtu : {size_t{548}, size_t{1472}, size_t{8972}}) {
        const std::vector<float> other = result(world, strategy, mtu, 0.1);
        EXPECT_EQ(std::memcmp(other.data(), clean.data(), kCount * sizeof(float)), 0)
            << world << ", " << strategy << ", " << mtu;
      }
    }
  }
}

}  // namespace
}  // namespace gradlane::test::ties_test
