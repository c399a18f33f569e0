// writes_test.cc - tests of a trainer that writes to its tensor during an operation: other ranks get no wrong results
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "tests/collectives/exchange/exchange_fixture.h"

namespace gradlane::test::writes_test {
namespace {

constexpr unsigned kWorld = 4;
constexpr unsigned kWriter = 1;
constexpr size_t kCount = 60'000;  // elements of a tensor or of each share

struct Case {
  const char* strategy;
  const char* codec;
};

class Writes : public testing::TestWithParam<Case> {
 protected:
  // The network of a run. run() makes the writer lose packets, so that it forwards much less than it receives. With a
  // small window it defers few packets, and results wait in its tensor.
  static SimConfig network(uint64_t seed) {
    SimConfig config;
    config.nodes = kWorld;
    config.seed = seed;
    config.topology = SimTopology::kSwitch;
    config.exchange.strategies = {find_strategy(GetParam().strategy)};
    config.exchange.max_bytes = kWorld * kCount * sizeof(float);
    config.exchange.operations = 1;
    config.exchange.window = 4;
    return config;
  }

  // The tensors of all ranks after a run, and their failures.
  struct Ends {
    std::vector<std::vector<float>> tensors{kWorld};
    std::vector<Failure> failures{kWorld};
    uint64_t absorbed = 0;
  };

  // Rank r contributes r + 1 in each element. The writer writes -1 to some elements whenever it receives a packet.
  static Ends run(OpKind kind, uint64_t seed) {
    SimNet net(network(seed));
    for (unsigned to = 0; to < kWorld; ++to) {
      if (to != kWriter) net.set_faults(kWriter, to, {.loss = 0.2});
    }
    Ends ends;
    const size_t count = has_shares(kind) ? kWorld * kCount : kCount;
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      ends.tensors[rank].assign(count, static_cast<float>(rank + 1));
    }
    Random random(seed);
    net.set_tap([&](unsigned, unsigned to, std::span<const uint8_t> packet) {
      if (to != kWriter || !is_data(packet)) return;
      for (int i = 0; i < 20; ++i) ends.tensors[kWriter][random.below(count)] = -1;
    });
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      Operation operation;
      operation.kind = kind;
      operation.count = kCount;
      operation.data = ends.tensors[rank].data();
      operation.codec = find_codec(GetParam().codec);
      (void)net.submit(rank, operation);
    }
    EXPECT_TRUE(net.run_until_idle(60 * kSecond));
    for (unsigned rank = 0; rank < kWorld; ++rank) ends.failures[rank] = net.node(rank).completions()[0].failure;
    ends.absorbed = net.node(kWriter).exchange().counters()[Counter::kRunsAbsorbed];
    return ends;
  }

  // Expects that `right` is true for each element of every other rank, or that the rank has an error that names the
  // writer.
  template <typename Right>
  static void expect_right(OpKind kind, Right right) {
    if (!supports(find_strategy(GetParam().strategy), kind)) return;
    size_t failed = 0;
    uint64_t absorbed = 0;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      const Ends ends = run(kind, seed);
      absorbed += ends.absorbed;
      for (unsigned rank = 0; rank < kWorld; ++rank) {
        const Failure& failure = ends.failures[rank];
        if (failure) {
          ++failed;
          EXPECT_EQ(failure_text(failure),
                    "stopped on rank 1: its trainer wrote to the tensor while the operation ran");
          continue;
        }
        if (rank == kWriter) continue;
        size_t wrong = 0;
        for (size_t i = 0; i < ends.tensors[rank].size(); ++i) wrong += !right(ends, rank, i);
        EXPECT_EQ(wrong, 0U) << op_name(kind) << ", rank " << rank << ", seed " << seed;
      }
    }
    const bool relays = StrategyId{find_strategy(GetParam().strategy)}.kind == StrategyId::Kind::kRing;
    if (relays) {
      EXPECT_GT(absorbed, 0U) << "nothing waited in the writer's tensor";
      EXPECT_GT(failed, 0U) << "no write was noticed";
    }
  }
};

TEST_P(Writes, DoNotChangeWhatTheRootSends) {
  expect_right(OpKind::kBroadcast,
               [](const Ends& ends, unsigned rank, size_t i) { return ends.tensors[rank][i] == 1.0F; });
}

// Each element of the writer's share is as it was when it was sent.
TEST_P(Writes, DoNotChangeWhatOthersGather) {
  expect_right(OpKind::kAllGather, [](const Ends& ends, unsigned rank, size_t i) {
    const size_t from = i / kCount;
    const float is = ends.tensors[rank][i];
    return is == static_cast<float>(from + 1) || (from == kWriter && is == -1.0F);
  });
}

TEST_P(Writes, DoNotChangeWhatOthersGatherOrScatter) {
  expect_right(OpKind::kGather, [](const Ends& ends, unsigned rank, size_t i) {
    const size_t from = i / kCount;
    const float is = ends.tensors[rank][i];
    return rank != 0 || is == static_cast<float>(from + 1) || (from == kWriter && is == -1.0F);
  });
  expect_right(OpKind::kScatter, [](const Ends& ends, unsigned rank, size_t i) {
    return i / kCount != rank || ends.tensors[rank][i] == 1.0F;
  });
}

// A sum may include any of the values of the writer's elements, but it is the same on all other ranks.
TEST_P(Writes, LeaveSumsAlikeOnAllRanks) {
  expect_right(OpKind::kAllReduce, [](const Ends& ends, unsigned rank, size_t i) {
    for (unsigned other = 0; other < kWorld; ++other) {
      if (other == kWriter || ends.failures[other]) continue;
      if (std::memcmp(&ends.tensors[other][i], &ends.tensors[rank][i], sizeof(float)) != 0) return false;
    }
    return true;
  });
}

INSTANTIATE_TEST_SUITE_P(, Writes,
                         testing::Values(Case{"ring", "raw"}, Case{"ring", "fixed:10"}, Case{"rings:2", "raw"},
                                         Case{"direct", "raw"}, Case{"aggregator:1", "raw"},
                                         Case{"aggregator:1,stream", "fixed:10"}),
                         [](const auto& it) {
                           std::string name = std::string(it.param.strategy) + "_" + it.param.codec;
                           std::ranges::replace_if(
                               name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace gradlane::test::writes_test
