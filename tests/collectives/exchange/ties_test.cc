// ties_test.cc - votes that are tied fall alike, however the sums travelled
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/random.h"
#include "tests/collectives/exchange/exchange_fixture.h"

namespace gradlane::test::ties_test {
namespace {

constexpr unsigned kWorld = 4;
constexpr size_t kCount = 40'000;

// What rank 0 has after votes of random signs, of which a good third are ties.
std::vector<float> result(const char* strategy, size_t mtu, double loss, uint64_t& absorbed) {
  SimConfig config;
  config.nodes = kWorld;
  config.topology = SimTopology::kSwitch;
  config.exchange.strategies = {find_strategy(strategy)};
  config.exchange.max_bytes = kCount * sizeof(float);
  config.exchange.mtu = mtu;
  SimNet net(config);
  for (unsigned from = 0; from < kWorld; ++from) {
    for (unsigned to = 0; to < kWorld; ++to) {
      if (from != to) net.set_faults(from, to, {.loss = loss});
    }
  }
  std::vector<std::vector<float>> data(kWorld, std::vector<float>(kCount));
  for (unsigned rank = 0; rank < kWorld; ++rank) {
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
  for (unsigned rank = 1; rank < kWorld; ++rank) {
    EXPECT_EQ(std::memcmp(data[rank].data(), data[0].data(), kCount * sizeof(float)), 0);
  }
  absorbed += net.count(Counter::kRunsAbsorbed);
  return data[0];
}

TEST(Ties, FallAlikeHoweverPacketsWereCut) {
  for (const char* const strategy : {"ring", "direct"}) {
    uint64_t absorbed = 0;
    const std::vector<float> clean = result(strategy, 1472, 0, absorbed);
    for (const size_t mtu : {size_t{548}, size_t{1472}, size_t{8972}}) {
      const std::vector<float> other = result(strategy, mtu, 0.1, absorbed);
      EXPECT_EQ(std::memcmp(other.data(), clean.data(), kCount * sizeof(float)), 0) << strategy << ", " << mtu;
    }
    EXPECT_TRUE(absorbed > 0 || std::strcmp(strategy, "ring") != 0) << "nothing was put off";
  }
}

}  // namespace
}  // namespace gradlane::test::ties_test
