// strategy_test.cc - tests of the links between ranks, and of the path of every block, under each strategy
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/strategy/owners.h"
#include "collectives/strategy/ring.h"
#include "collectives/strategy/rings.h"
#include "collectives/strategy/strategy_id.h"
#include "collectives/strategy/topology.h"
#include "tests/thorough.h"

namespace gradlane::test::strategy_test {
namespace {

using Kind = StrategyId::Kind;

constexpr OpKind kKinds[] = {OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllGather, OpKind::kBroadcast,
                             OpKind::kBarrier};

bool sums(OpKind kind) { return kind != OpKind::kAllGather && kind != OpKind::kBroadcast; }

constexpr OpKind kDeliveries[] = {OpKind::kGather, OpKind::kScatter, OpKind::kAllToAll};

// ---- Links

// Returns the neighbours of a rank, sorted.
std::vector<unsigned> linked(const char* names, unsigned world, unsigned rank) {
  std::vector<unsigned> ranks = linked_ranks(find_strategies(names), world, rank);
  std::ranges::sort(ranks);
  return ranks;
}

TEST(Topology, Neighbours) {
  using Ranks = std::vector<unsigned>;
  EXPECT_EQ(linked("direct", 1, 0), Ranks{});
  EXPECT_EQ(linked("direct", 2, 1), Ranks{0});
  EXPECT_EQ(linked("ring", 6, 0), (Ranks{1, 5}));
  EXPECT_EQ(linked("direct", 5, 2), (Ranks{0, 1, 3, 4}));
  EXPECT_EQ(linked("aggregator:2", 6, 2), (Ranks{0, 1, 3, 4, 5}));
  EXPECT_EQ(linked("aggregator:2", 6, 5), (Ranks{0, 2, 4}));
  EXPECT_EQ(linked("rings:3", 9, 4), (Ranks{1, 3, 5, 7}));
  EXPECT_EQ(linked("rings:3", 9, 3), (Ranks{0, 2, 4, 5, 6}));
  EXPECT_EQ(linked("rings:2", 4, 0), (Ranks{1, 2, 3}));
  EXPECT_EQ(linked("ring,rings:4,aggregator:0", 8, 6), (Ranks{0, 2, 5, 7}));
}

TEST(Topology, GoesBothWaysWithTheRingFirst) {
  for (const char* const names : {"ring", "direct", "rings:2", "rings:4", "aggregator:1", "rings:8,aggregator:3"}) {
    const unsigned world = 8;
    for (unsigned rank = 0; rank < world; ++rank) {
      const Topology topology(find_strategies(names), world, rank);
      ASSERT_EQ(topology.ring_links(), 2U);
      EXPECT_EQ(topology.neighbours()[Topology::kSuccessor], (rank + 1) % world);
      EXPECT_EQ(topology.neighbours()[topology.predecessor()], (rank + world - 1) % world);
      EXPECT_FALSE(topology.link_to(rank).has_value());
      for (size_t link = 0; link < topology.links(); ++link) {
        const unsigned other = topology.neighbours()[link];
        EXPECT_EQ(topology.link_to(other), link);
        EXPECT_TRUE(Topology(find_strategies(names), world, other).link_to(rank).has_value()) << names;
      }
    }
  }
}

TEST(Topology, WindowsOfExtraLinks) {
  EXPECT_EQ(extra_window(256, 0), 0U);
  EXPECT_EQ(extra_window(256, 1), 256U);
  EXPECT_EQ(extra_window(256, 13), 64U);
  EXPECT_EQ(extra_window(256, 61), 16U);
  EXPECT_EQ(extra_window(256, 253), 16U);
  EXPECT_EQ(extra_window(2, 253), 2U);
}

// ---- Paths of blocks

struct Rank {
  std::unique_ptr<Topology> topology;
  std::unique_ptr<Strategy> strategy;
};

std::vector<Rank> ranks_of(const char* name, unsigned world) {
  const StrategyId id = find_strategy(name);
  std::vector<Rank> ranks(world);
  for (unsigned rank = 0; rank < world; ++rank) {
    Rank& it = ranks[rank];
    it.topology = std::make_unique<Topology>(std::vector{id}, world, rank);
    if (id.kind == Kind::kRing) it.strategy = std::make_unique<Ring>(SubRing::of(*it.topology, rank, world, 0, 1));
    if (id.kind == Kind::kRings) it.strategy = std::make_unique<Rings>(*it.topology, world, rank, id.group());
    if (id.kind == Kind::kDirect || id.kind == Kind::kAggregator) {
      it.strategy = std::make_unique<Owners>(*it.topology, id, world, rank);
    }
  }
  return ranks;
}

// Follows the elements of a block from their first rank, link by link. Every rank receives them at most once in each
// phase.
class Travel {
 public:
  Travel(const std::vector<Rank>& ranks, const RouteKey& route) : ranks_(ranks), task_(route), stored_(ranks.size()) {}

  // Returns how many ranks of `sub_ring` begin to send the block.
  unsigned go(unsigned block, const std::vector<unsigned>& sub_ring) {
    unsigned starts = 0;
    for (const unsigned rank : sub_ring) {
      const Step step = ranks_[rank].strategy->start(task_, block);
      if (!step.expected) continue;
      ++starts;
      merged_ = {rank};
      follow(rank, step, block, sub_ring);
    }
    return starts;
  }

  [[nodiscard]] const std::vector<unsigned>& merged() const { return merged_; }
  [[nodiscard]] unsigned stored(unsigned rank) const { return stored_[rank]; }

 private:
  [[nodiscard]] size_t link(unsigned from, unsigned to) const { return ranks_[from].topology->link_to(to).value(); }

  void follow(unsigned rank, Step step, unsigned block, const std::vector<unsigned>& sub_ring) {
    std::set<std::pair<unsigned, Phase>> seen;
    for (;;) {
      if (step.store) ++stored_[rank];
      if (!step.send) break;
      ASSERT_LT(step.link, ranks_[rank].topology->links());
      if (step.phase == Phase::kGather) {
        ASSERT_TRUE(step.store);
      }
      const Phase phase = step.phase;
      const unsigned next = ranks_[rank].topology->neighbours()[step.link];
      const size_t back = link(next, rank);
      ASSERT_TRUE(ranks_[next].strategy->sources(task_).test(back));
      ASSERT_TRUE(seen.insert({next, phase}).second) << "comes by twice";
      step = ranks_[next].strategy->arrival(task_, phase, block, back);
      ASSERT_TRUE(step.expected);
      ASSERT_EQ(step.merge, phase == Phase::kReduce);
      rank = next;
      if (step.merge) merged_.push_back(rank);
    }
    // A rank expects elements from exactly one link, and only elements that do arrive.
    for (const unsigned other : sub_ring) {
      for (const Phase each : {Phase::kReduce, Phase::kGather}) {
        unsigned ways = 0;
        for (size_t in = 0; in < ranks_[other].topology->links(); ++in) {
          if (ranks_[other].strategy->arrival(task_, each, block, in).expected) ++ways;
        }
        ASSERT_EQ(ways, seen.contains({other, each}) ? 1U : 0U);
      }
    }
  }

  const std::vector<Rank>& ranks_;
  RouteKey task_;
  std::vector<unsigned> merged_;
  std::vector<unsigned> stored_;
};

// Returns the members of a sub-ring in the order b + 1, b + 2, ..., b.
std::vector<unsigned> ring_order(const std::vector<unsigned>& sub_ring, size_t block) {
  std::vector<unsigned> order;
  for (size_t i = 1; i <= sub_ring.size(); ++i) order.push_back(sub_ring[(block + i) % sub_ring.size()]);
  return order;
}

std::vector<unsigned> everybody(unsigned world) {
  std::vector<unsigned> ranks(world);
  for (unsigned i = 0; i < world; ++i) ranks[i] = i;
  return ranks;
}

TEST(Ring, Ways) {
  for (const unsigned world : {1U, 2U, 3U, 4U, 5U, 8U, 17U, thorough() ? 256U : 40U}) {
    const std::vector<Rank> ranks = ranks_of("ring", world);
    const std::vector<unsigned> all = everybody(world);
    for (const OpKind kind : kKinds) {
      for (const unsigned root : {0U, world / 2, world - 1}) {
        SCOPED_TRACE(testing::Message() << op_name(kind) << ", world " << world << ", root " << root);
        const RouteKey route{.kind = kind, .root = root};
        const unsigned blocks = ranks[0].strategy->division(route).blocks;
        EXPECT_EQ(blocks, kind == OpKind::kBroadcast ? 1U : world);
        for (unsigned block = 0; block < blocks; ++block) {
          Travel travel(ranks, route);
          EXPECT_EQ(travel.go(block, all), 1U);
          std::vector<unsigned> order = ring_order(all, block);
          if (!sums(kind)) order = {kind == OpKind::kBroadcast ? root : block};
          EXPECT_EQ(travel.merged(), order);
          for (unsigned rank = 0; rank < world; ++rank) {
            EXPECT_EQ(travel.stored(rank), kind == OpKind::kReduceScatter && rank != block ? 0U : 1U) << rank;
          }
        }
      }
    }
  }
}

TEST(Ring, NewsOfAFailureGoesOnceRound) {
  for (const unsigned world : {1U, 2U, 3U, 4U, 17U}) {
    for (unsigned origin = 0; origin < world; ++origin) {
      unsigned rank = origin;
      for (unsigned told = 1;; ++told) {
        const Topology topology(std::vector{StrategyId{}}, world, rank);
        const Step step = Ring(SubRing::of(topology, rank, world, 0, 1)).failure(origin);
        EXPECT_EQ(step.send, told < world);
        if (!step.send) break;
        EXPECT_EQ(step.phase, Phase::kAbort);
        rank = topology.neighbours()[step.link];
      }
    }
  }
}

// The share of each rank is added within its group, then across groups. Then the group gets the results. So every rank
// ends with all shares, and the sum of each share has every rank exactly once.
TEST(Rings, Ways) {
  const std::pair<unsigned, unsigned> cases[] = {{4, 2}, {6, 2}, {6, 3}, {9, 3}, {16, 4}, {64, 8}};
  for (const auto& [world, group] : cases) {
    SCOPED_TRACE(testing::Message() << "world " << world << ", group " << group);
    const std::vector<Rank> ranks = ranks_of(("rings:" + std::to_string(group)).c_str(), world);
    EXPECT_EQ(ranks[0].strategy->stages(OpKind::kAllReduce), 3U);
    for (unsigned stage = 0; stage < 3; ++stage) {
      const RouteKey route{.kind = OpKind::kAllReduce, .stage = stage};
      const bool across = stage == 1;
      for (unsigned which = 0; which < (across ? group : world / group); ++which) {
        std::vector<unsigned> sub_ring;
        for (unsigned i = 0; i < (across ? world / group : group); ++i) {
          sub_ring.push_back(across ? which + i * group : which * group + i);
        }
        const Division division = ranks[sub_ring[0]].strategy->division(route);
        EXPECT_EQ(division.blocks, sub_ring.size());
        EXPECT_EQ(division.shares, across ? group : 1U);
        EXPECT_EQ(division.share, across ? which : 0U);
        for (unsigned block = 0; block < sub_ring.size(); ++block) {
          Travel travel(ranks, route);
          EXPECT_EQ(travel.go(block, sub_ring), 1U);
          EXPECT_EQ(travel.merged(), stage == 2 ? std::vector{sub_ring[block]} : ring_order(sub_ring, block));
          for (size_t place = 0; place < sub_ring.size(); ++place) {
            EXPECT_EQ(travel.stored(sub_ring[place]), stage == 0 && place != block ? 0U : 1U);
          }
        }
      }
    }
  }
}

// Each block has one owner. All other ranks send to it, each over its own link, and get results from it.
TEST(Owners, Ways) {
  const std::pair<const char*, unsigned> cases[] = {{"direct", 2},       {"direct", 3},       {"direct", 8},
                                                    {"aggregator:0", 2}, {"aggregator:3", 5}, {"aggregator:7", 8}};
  for (const auto& [name, world] : cases) {
    const std::vector<Rank> ranks = ranks_of(name, world);
    for (const OpKind kind : kKinds) {
      if (!supports(find_strategy(name), kind)) continue;
      for (const unsigned rotation : {0U, 1U, world - 1}) {
        if (rotation != 0 && (!ranks[0].strategy->rotates() || kind != OpKind::kAllReduce)) continue;
        SCOPED_TRACE(testing::Message() << name << ", " << op_name(kind) << ", world " << world);
        const RouteKey route{.kind = kind, .root = world / 2, .rotation = rotation};
        const unsigned blocks = ranks[0].strategy->division(route).blocks;
        std::set<unsigned> owners;
        for (unsigned block = 0; block < blocks; ++block) {
          const unsigned owner = ranks[0].strategy->owner(route, block);
          owners.insert(owner);
          for (unsigned rank = 0; rank < world; ++rank) {
            const Strategy& own = *ranks[rank].strategy;
            EXPECT_EQ(own.owner(route, block), owner);
            const Step start = own.start(route, block);
            EXPECT_EQ(start.expected, sums(kind) ? rank != owner : rank == owner);
            EXPECT_EQ(start.to_all, !sums(kind) && rank == owner);
            if (start.send) {
              EXPECT_EQ(ranks[rank].topology->neighbours()[start.link], owner);
            }
            for (size_t link = 0; link < ranks[rank].topology->links(); ++link) {
              const unsigned from = ranks[rank].topology->neighbours()[link];
              const Step sum = own.arrival(route, Phase::kReduce, block, link);
              EXPECT_EQ(sum.expected, sums(kind) && rank == owner);
              EXPECT_TRUE(sum.in_turn && !sum.send);
              EXPECT_EQ(sum.to_all, kind != OpKind::kReduceScatter);
              const Step result = own.arrival(route, Phase::kGather, block, link);
              EXPECT_EQ(result.expected, kind != OpKind::kReduceScatter && rank != owner && from == owner);
            }
          }
          const unsigned first = ranks[0].strategy->first_of(route, block);
          EXPECT_EQ(first, (blocks == 1 ? owner + 1 : block + 1) % world);
        }
        EXPECT_EQ(owners.size(), blocks);
      }
    }
  }
}

TEST(Owners, ReduceHasOneBlockWhichIsTheRoots) {
  for (const unsigned world : {2U, 3U, 8U}) {
    const std::vector<Rank> ranks = ranks_of("direct", world);
    for (unsigned root = 0; root < world; ++root) {
      const RouteKey route{.kind = OpKind::kReduce, .root = root, .rotation = 1};
      for (unsigned rank = 0; rank < world; ++rank) {
        const Strategy& own = *ranks[rank].strategy;
        EXPECT_EQ(own.division(route).blocks, 1U);
        EXPECT_EQ(own.owner(route, 0), root);
        EXPECT_EQ(own.first_of(route, 0), (root + 1) % world);
        EXPECT_EQ(own.start(route, 0).send, rank != root);
        EXPECT_EQ(own.sources(route).count(), rank == root ? world - 1 : 0);
        for (size_t link = 0; link < ranks[rank].topology->links(); ++link) {
          EXPECT_EQ(own.arrival(route, Phase::kReduce, 0, link).expected, rank == root);
          EXPECT_FALSE(own.arrival(route, Phase::kReduce, 0, link).to_all);
          EXPECT_FALSE(own.arrival(route, Phase::kGather, 0, link).expected);
        }
      }
    }
  }
}

// Every packet that a rank sends is expected by its receiver, and nothing else is expected.
TEST(Owners, Deliveries) {
  for (const unsigned world : {2U, 3U, 8U}) {
    const std::vector<Rank> ranks = ranks_of("direct", world);
    for (const OpKind kind : kDeliveries) {
      for (unsigned root = 0; root < world; ++root) {
        SCOPED_TRACE(testing::Message() << op_name(kind) << ", world " << world << ", root " << root);
        const RouteKey route{.kind = kind, .root = root};
        std::set<std::tuple<unsigned, unsigned, unsigned>> sent;  // from, to, block
        std::set<std::tuple<unsigned, unsigned, unsigned>> awaited;
        for (unsigned rank = 0; rank < world; ++rank) {
          const Strategy& own = *ranks[rank].strategy;
          const Topology& topology = *ranks[rank].topology;
          EXPECT_EQ(own.division(route).blocks, world);
          for (unsigned block = 0; block < world; ++block) {
            const Step start = own.start(route, block);
            EXPECT_EQ(start.expected, start.send);
            if (start.send) sent.insert({rank, topology.neighbours()[start.link], block});
            for (size_t link = 0; link < topology.links(); ++link) {
              EXPECT_FALSE(own.arrival(route, Phase::kReduce, block, link).expected);
              const Step step = own.arrival(route, Phase::kGather, block, link);
              if (!step.expected) continue;
              EXPECT_TRUE(step.store && !step.send && !step.to_all && !step.merge);
              EXPECT_TRUE(own.sources(route).test(link));
              awaited.insert({topology.neighbours()[link], rank, block});
            }
          }
        }
        EXPECT_EQ(sent, awaited);
        EXPECT_EQ(sent.size(), kind == OpKind::kAllToAll ? world * (world - 1) : world - 1);
        for (const auto& [from, to, block] : sent) {
          EXPECT_EQ(block, kind == OpKind::kGather ? from : to);
          EXPECT_TRUE(kind != OpKind::kGather || to == root);
          EXPECT_TRUE(kind != OpKind::kScatter || from == root);
        }
      }
    }
  }
}

}  // namespace
}  // namespace gradlane::test::strategy_test
