// trace_test.cc - tests of traces in virtual time: both ends of every hop, waits, beginning and end of operations
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/trace_log.h"
#include "tests/collectives/exchange/exchange_fixture.h"

namespace gradlane::test::trace_test {
namespace {

constexpr unsigned kWorld = 4;

Nanos g_time = 1;
Nanos ticks() noexcept { return g_time += 100; }

template <class Record>
std::vector<Record> records_of(const std::vector<uint64_t>& words) {
  std::vector<Record> records;
  for (size_t i = 0; i < words.size(); i += words[i] >> 8 & 0xff) {
    if ((words[i] & 0xff) != static_cast<uint64_t>(Record::kKind)) continue;
    std::array<uint64_t, sizeof(Record) / 8> record{};
    std::copy_n(words.begin() + static_cast<ptrdiff_t>(i), record.size(), record.begin());
    records.push_back(std::bit_cast<Record>(record));
  }
  return records;
}

// A ring of four nodes, each with a log.
class Traced {
 public:
  Traced(const std::string& strategy, const Faults& faults) : net_(config(strategy, faults)) {
    for (unsigned i = 0; i < kWorld; ++i) {
      logs_.push_back(net_.node(i).exchange().make_trace(size_t{1} << 16, ticks));
      net_.node(i).trace(logs_.back().get());
    }
  }
  SimNet& net() { return net_; }
  void start() {
    for (auto& log : logs_) log->start();
    poll();
  }
  // Returns all records of each rank.
  std::vector<std::vector<uint64_t>> stop() {
    for (auto& log : logs_) log->stop();
    poll();
    std::vector<std::vector<uint64_t>> words(kWorld);
    for (unsigned i = 0; i < kWorld; ++i) {
      EXPECT_TRUE(logs_[i]->over());
      EXPECT_EQ(logs_[i]->dropped(), 0U);
      logs_[i]->take(words[i], ~size_t{0});
    }
    return words;
  }

 private:
  static SimConfig config(const std::string& strategy, const Faults& faults) {
    SimConfig config;
    config.nodes = kWorld;
    config.topology = SimTopology::kSwitch;
    config.faults = faults;
    config.exchange.strategies = find_strategies(strategy);
    config.exchange.max_bytes = size_t{4} << 20;
    return config;
  }
  void poll() {
    for (unsigned i = 0; i < kWorld; ++i) net_.wake(i);
    net_.run_until(net_.now() + 1);
  }
  SimNet net_;
  std::vector<std::unique_ptr<TraceLog>> logs_;
};

// Key of a hop: operation number, stage, phase, block, sending rank, receiving rank.
using PacketPath = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t>;
struct Ends {
  TraceHop out;
  TraceHop in;
};
std::map<PacketPath, Ends> ways_of(const std::vector<std::vector<uint64_t>>& words) {
  std::map<PacketPath, Ends> ways;
  for (uint64_t rank = 0; rank < kWorld; ++rank) {
    for (const TraceHop& it : records_of<TraceHop>(words[rank])) {
      const bool in = (it.what & TraceHop::kIn) != 0;
      const uint64_t peer = it.what >> 32;
      for (uint64_t to = 0; to < kWorld; ++to) {
        const bool all = (it.what & TraceHop::kToAll) != 0;
        if (all ? to == rank : to != (in ? rank : peer)) continue;
        Ends& ends = ways[{it.number, it.what >> 8 & 0xff, it.what & TraceHop::kGather, it.what >> 16 & 0xffff,
                           in ? peer : rank, to}];
        TraceHop& end = in ? ends.in : ends.out;
        EXPECT_EQ(end.runs, 0U) << "twice";
        end = it;
      }
    }
  }
  return ways;
}

class TraceOf : public testing::TestWithParam<const char*> {};

TEST_P(TraceOf, EveryHopHasTwoEnds) {
  for (const double loss : {0.0, 0.02}) {
    Traced traced(GetParam(), {.loss = loss, .reorder = loss});
    std::vector<JobSpec> specs;
    for (const size_t count : {1U, 5000U, 200'000U}) specs.push_back({.count = count, .codec = "fixed:10"});
    specs.push_back({.kind = OpKind::kBarrier});
    for (JobSpec& spec : specs) spec.strategy = GetParam();
    std::vector<Job> jobs = make_jobs(specs, kWorld, 1);
    traced.start();
    ASSERT_TRUE(run(traced.net(), jobs));
    const auto words = traced.stop();
    uint64_t bytes = 0;
    for (const auto& [way, ends] : ways_of(words)) {
      SCOPED_TRACE(testing::PrintToString(way));
      ASSERT_NE(ends.out.runs, 0U);
      ASSERT_NE(ends.in.runs, 0U);
      EXPECT_LE(ends.out.first, ends.in.first);
      EXPECT_LE(ends.out.last, ends.in.last);
      EXPECT_EQ(ends.out.bytes, ends.in.bytes);
      bytes += ends.in.bytes;
    }
    EXPECT_EQ(bytes, traced.net().count(Counter::kRunBytes));
    for (const auto& of : words) {
      const auto operations = records_of<TraceOperation>(of);
      ASSERT_EQ(operations.size(), specs.size());
      for (const TraceOperation& it : operations) {
        EXPECT_LE(it.asked, it.submitted);
        EXPECT_LE(it.submitted, it.started);
        EXPECT_LE(it.started, it.ready);
        EXPECT_LE(it.ready, it.ended);
        Nanos waited = 0;
        for (const Nanos each : it.waited) waited += each;
        EXPECT_EQ(waited, it.ended - it.submitted);
        EXPECT_EQ(it.flags, 0U);
        EXPECT_EQ(it.what >> 32, 0U);
      }
      Nanos timed = 0;
      for (const TraceOperation& it : operations) timed += it.encode + it.add + it.decode;
      EXPECT_GT(timed, 0U);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, TraceOf, testing::Values("ring", "direct", "rings:2", "aggregator:0"),
                         [](const auto& strategy) {
                           const std::string name = strategy.param;
                           return name.substr(0, name.find(':'));
                         });

TEST(TraceTest, SaysWhomItWaitsFor) {
  Traced traced("ring", {});
  std::vector<JobSpec> specs = {{.count = 100'000, .codec = "raw"}};
  std::vector<Job> jobs = make_jobs(specs, kWorld, 1);
  ASSERT_TRUE(run(traced.net(), jobs));  // the ring is ready
  jobs[0].renew(2);
  traced.start();
  // Rank 2 is late. It is the successor of rank 1 and the predecessor of rank 3.
  for (const unsigned rank : {0U, 1U, 3U}) (void)traced.net().submit(rank, jobs[0].operation(rank));
  traced.net().run_until(traced.net().now() + 50 * kMillisecond);
  (void)traced.net().submit(2, jobs[0].operation(2));
  ASSERT_TRUE(traced.net().run_until_idle(traced.net().now() + 10 * kSecond));
  const auto words = traced.stop();
  const auto longest = [&](unsigned rank) {
    TraceWait most;
    for (const TraceWait& it : records_of<TraceWait>(words[rank])) {
      if (it.until - it.since > most.until - most.since) most = it;
    }
    EXPECT_GE(most.until - most.since, 49 * kMillisecond);
    return std::pair(static_cast<TraceCause>(most.what & 0xff), most.what >> 8);
  };
  EXPECT_EQ(longest(1), std::pair(TraceCause::kStart, uint64_t{2}));
  EXPECT_EQ(longest(3), std::pair(TraceCause::kPackets, uint64_t{2}));
}

TEST(TraceTest, KnowsWhatItHasNotSeenAllOf) {
  Traced traced("ring", {});
  std::vector<JobSpec> specs = {{.count = 1000}, {.count = 1000}};
  std::vector<Job> jobs = make_jobs(specs, kWorld, 1);
  traced.net().run_until(traced.net().now() + 100 * kMillisecond);
  for (const unsigned rank : {0U, 1U, 3U}) (void)traced.net().submit(rank, jobs[0].operation(rank));
  traced.net().run_until(traced.net().now() + kMillisecond);
  traced.start();
  (void)traced.net().submit(2, jobs[0].operation(2));
  (void)traced.net().submit(0, jobs[1].operation(0));
  const auto over = [&] {
    for (unsigned i = 0; i < kWorld; ++i) {
      if (traced.net().node(i).completions().empty()) return false;
    }
    return true;
  };
  ASSERT_TRUE(traced.net().run_until(over, 10 * kSecond));
  const auto words = traced.stop();
  const auto first = records_of<TraceOperation>(words[0]);
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].flags, uint64_t{TraceOperation::kCut});
  EXPECT_EQ(first[1].flags, uint64_t{TraceOperation::kOpen});
  EXPECT_EQ(records_of<TraceOperation>(words[2]).front().flags, 0U);
}

}  // namespace
}  // namespace gradlane::test::trace_test
