// session_test.cc - tests of rings whose nodes start in any order, and of packets of sessions that are over
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "tests/collectives/exchange/exchange_fixture.h"
#include "tests/collectives/exchange/failure_fixture.h"

namespace gradlane::test::session_test {
namespace {

const std::vector<unsigned> kWorlds = thorough() ? std::vector{2U, 3U, 4U, 8U, 16U} : std::vector{2U, 3U, 5U};
const JobSpec kSmallJob = {.kind = OpKind::kAllReduce, .count = 1000, .type = ElementType::kInt32};

// ---- Start of a ring

// Starts nodes in this order, at intervals of `apart`. Each submits operations at once, and none of them may fail. If
// `started_late`, packets that arrived before a node started are lost.
void start_in_order(const std::vector<unsigned>& order, Nanos apart, bool started_late, double loss) {
  const auto world = static_cast<unsigned>(order.size());
  SimConfig config = slow_ring(world, world + order[0], loss);
  config.faults.busy = loss;
  TestRing ring(config);
  for (const unsigned rank : order) ring.net().pause(rank);
  const std::array jobs = {ring.make(kSmallJob), ring.make({.kind = OpKind::kBarrier}), ring.make(kSmallJob)};
  for (const unsigned rank : order) {
    ring.net().resume(rank);
    if (started_late) ring.restart(rank);
    for (const size_t job : jobs) ring.submit(job, rank);
    ring.run_for(apart);
  }
  const Nanos complete = ring.net().now();
  EXPECT_TRUE(ring.finish(jobs, 9 * kSecond));
  EXPECT_TRUE(ring.succeeded(jobs));
  // Nodes send a hello at least every 31 ms.
  if (loss == 0) {
    EXPECT_LE(ring.net().now(), complete + 100 * kMillisecond);
  }
  EXPECT_EQ(ring.net().count(Counter::kPeerSilent), 0U);
  EXPECT_EQ(ring.net().count(Counter::kPeerRestarted), 0U);
}

TEST(Start, InAnyOrder) {
  for (const unsigned world : {2U, 3U, 4U}) {
    std::vector<unsigned> order(world);
    std::iota(order.begin(), order.end(), 0);
    do {
      for (const Nanos apart : {Nanos{0}, 40 * kMicrosecond, 2200 * kMicrosecond, 2 * kSecond}) {
        for (const bool started_late : {false, true}) {
          SCOPED_TRACE(testing::PrintToString(order) + ", " + std::to_string(apart) + " ns" +
                       (started_late ? ", fresh" : ""));
          start_in_order(order, apart, started_late, 0);
        }
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(Start, OverLossyLinks) {
  Random random(7);
  for (const unsigned world : {2U, 3U, 8U, 16U, 64U}) {
    for (const double loss : {0.01, 0.2}) {
      std::vector<unsigned> order(world);
      std::iota(order.begin(), order.end(), 0);
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
      for (const Nanos apart : {Nanos{0}, 100 * kMicrosecond, 3 * kSecond / world}) {
        SCOPED_TRACE(testing::Message() << "world " << world << ", loss " << loss << ", " << apart << " ns");
        start_in_order(order, apart, true, loss);
      }
    }
  }
}

// A rank restarts while the others still wait for another one. The others cannot know whether any rank has begun an
// operation with it before the restart. So operations that they have submitted may fail, but nothing else may happen.
TEST(Start, WithARestartOnTheWay) {
  for (const unsigned world : {3U, 4U, 8U}) {
    for (const Nanos later : {30 * kMicrosecond, 80 * kMicrosecond, 300 * kMicrosecond, 50 * kMillisecond}) {
      SCOPED_TRACE(testing::Message() << "world " << world << ", " << later << " ns");
      TestRing ring(slow_ring(world, world));
      ring.net().pause(0);
      const size_t job = ring.make(kSmallJob);
      for (unsigned rank = 2; rank < world; ++rank) ring.submit(job, rank);
      ring.run_for(later);
      ring.restart(1);
      ring.submit(job, 1);
      ring.run_for(kSecond);
      for (unsigned rank = 2; rank < world; ++rank) {
        if (ring.end_of(job, rank) == nullptr) continue;
        EXPECT_TRUE(ring.failed(job, rank, {FailureCode::kRestarted, {1}}));
        ring.submit(job, rank);
      }
      EXPECT_EQ(ring.end_of(job, 1), nullptr);
      ring.net().resume(0);
      ring.submit(job, 0);
      EXPECT_TRUE(ring.finish({&job, 1}, 5 * kSecond));
      EXPECT_TRUE(ring.succeeded(job));
    }
  }
}

// While rank 2 is away, the others begin as many generations as if they retried without a pause for half an hour.
TEST(Start, AfterMillionsOfGenerations) {
  SimConfig config = slow_ring(3, 3);
  config.exchange.window = kMinWindow;
  TestRing ring(config);
  EXPECT_TRUE(ring.works());
  ring.net().pause(2);
  for (int i = 0; i < rounds(2'000'000); ++i) ring.net().node(0).exchange().close();
  ring.net().wake(0);
  ring.restart(2);
  ring.net().resume(2);
  EXPECT_TRUE(ring.wait_whole(kSecond));
  EXPECT_TRUE(ring.works());
}

// Two neighbours restart before another rank notices. The operations that they submit afterwards do not fail.
TEST(Start, AfterTwoRestartsAtOnce) {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    for (const bool later : {false, true}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << (later ? ", later generation" : ""));
      TestRing ring(slow_ring(4, seed));
      if (later) {
        ring.restart(0);
        EXPECT_TRUE(ring.wait_whole(kSecond));
      }
      EXPECT_TRUE(ring.works());
      ring.restart(1);
      ring.run_for(seed * 2 * kMicrosecond);  // too short for rank 1 to receive a hello
      ring.restart(2);
      const size_t job = ring.make(kSmallJob);
      ring.submit(job, 1);
      ring.submit(job, 2);
      ring.run_for(100 * kMillisecond);
      for (const unsigned rank : {0U, 3U}) ring.submit(job, rank);
      EXPECT_TRUE(ring.finish({&job, 1}, kSecond));
      EXPECT_TRUE(ring.succeeded(job));
    }
  }
}

// A ring that is ready keeps its root when a restarted node starts a new generation. Otherwise a rank that has not yet
// seen that the ring is ready would not get the failure.
TEST(Start, AWholeRingKeepsItsRoot) {
  TestRing ring(slow_ring(4, 1));
  EXPECT_TRUE(ring.works());
  const auto session = [&] { return ring.net().node(0).exchange().ring_status().session; };
  const uint64_t before = session();
  ring.restart(3);
  for (int i = 0; i < 5; ++i) ring.net().close(3);  // each call begins the next generation
  EXPECT_TRUE(ring.wait_whole(kSecond));
  EXPECT_GT(session() >> 32, 5U);
  EXPECT_EQ(session() >> 16 & 0xffff, before >> 16 & 0xffff);
  EXPECT_TRUE(ring.works());
}

// ---- Late packets

struct Recorded {
  unsigned from;
  unsigned to;
  Bytes packet;
};

// Records all packets that nodes receive.
class Recorder {
 public:
  explicit Recorder(TestRing& ring) : ring_(ring) {
    ring.net().set_tap([this](unsigned from, unsigned to, std::span<const uint8_t> packet) {
      if (on_ && packets_.size() < kMost) packets_.push_back({from, to, {packet.begin(), packet.end()}});
    });
  }
  ~Recorder() { ring_.net().set_tap(nullptr); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void stop() { on_ = false; }
  void drop_session(uint64_t session) {
    std::erase_if(packets_, [=](const Recorded& it) { return load<LinkHeader>(it.packet.data()).session == session; });
  }
  void keep_only(PacketKind kind) {
    std::erase_if(packets_, [=](const Recorded& it) { return load<LinkHeader>(it.packet.data()).kind != kind; });
  }
  void shuffle(Random& random) {
    for (size_t i = packets_.size(); i > 1; --i) std::swap(packets_[i - 1], packets_[random.below(i)]);
  }
  [[nodiscard]] size_t size() const { return packets_.size(); }
  // Injects the next `count` packets again, and starts with the first one again when it has reached the last.
  void replay(size_t count) {
    for (; count != 0; --count) {
      const Recorded& it = packets_[next_++ % packets_.size()];
      ring_.net().inject(it.to, it.from, it.packet);
    }
  }

 private:
  static constexpr size_t kMost = 30'000;

  TestRing& ring_;
  std::vector<Recorded> packets_;
  size_t next_ = 0;
  bool on_ = true;
};

// Makes several sessions begin and end in the middle of operations, each in a different way.
void live_through_sessions(TestRing& ring) {
  const unsigned world = ring.world();
  for (unsigned round = 0; round < 4; ++round) {
    EXPECT_TRUE(ring.wait_whole(5 * kSecond));
    const auto jobs = ring.start(busy_jobs(world));
    ring.run_for(400 * kMicrosecond + round * 600 * kMicrosecond);
    const unsigned rank = round % world;
    if (round == 3) ring.net().close(rank);
    if (round == 2) {
      ring.net().pause(rank);
      ring.run_for(2 * kSecond);
      ring.net().resume(rank);
    }
    if (round < 2) ring.restart(rank);
    ring.run_for(20 * kMillisecond);
  }
  EXPECT_TRUE(ring.wait_whole(5 * kSecond));
}

TEST(LatePackets, ChangeNothing) {
  Random random(3);
  for (const unsigned world : kWorlds) {
    for (const bool in_order : {true, false}) {
      SCOPED_TRACE(testing::Message() << "world " << world << (in_order ? ", in order" : ", shuffled"));
      TestRing ring(slow_ring(world, world));
      Recorder recorder(ring);
      live_through_sessions(ring);
      recorder.stop();
      recorder.drop_session(ring.net().node(0).exchange().ring_status().session);
      if (!in_order) recorder.shuffle(random);
      ASSERT_GT(recorder.size(), 500U);
      const uint64_t sessions = ring.net().count(Counter::kSessions);
      const uint64_t stale = ring.net().count(Counter::kStaleSession);
      for (unsigned round = 0; round < 2; ++round) {
        const auto jobs = ring.start(busy_jobs(world));
        const Nanos end = ring.net().now() + kSecond;
        do {
          recorder.replay(1 + random.below(40));
          ring.run_for(1 + random.below(50 * kMicrosecond));
        } while (!ring.finish(jobs, 0) && ring.net().now() < end);
        EXPECT_TRUE(ring.succeeded(jobs));
      }
      recorder.replay(recorder.size());
      EXPECT_TRUE(ring.works());
      EXPECT_GT(ring.net().count(Counter::kStaleSession), stale + 100);
      EXPECT_EQ(ring.net().count(Counter::kSessions), sessions);
    }
  }
}

// A restarted node enters the ring's session before its neighbour learns of the restart. Data that arrives in between
// is for the earlier life, and is dropped.
TEST(LatePackets, ForAnEarlierLife) {
  Bytes hello;
  TestRing ring(slow_ring(3, 1));
  ring.net().pause(2);  // so that the ring is not ready
  ring.net().set_tap([&](unsigned, unsigned to, std::span<const uint8_t> packet) {
    if (to == 1 && load<LinkHeader>(packet.data()).kind == PacketKind::kHello) hello = {packet.begin(), packet.end()};
  });
  ring.run_for(50 * kMillisecond);
  ring.restart(1);
  const auto count = [&](Counter counter) { return ring.net().node(1).exchange().counters()[counter]; };
  ASSERT_TRUE(
      ring.net().run_until([&] { return count(Counter::kHelloReceived) != 0; }, ring.net().now() + 5 * kSecond));
  hello.resize(sizeof(LinkHeader) + sizeof(Hello));  // fields that a hello leaves out are 0
  const auto header = load<LinkHeader>(hello.data());
  const auto body = load<Hello>(hello.data() + sizeof(LinkHeader));
  ASSERT_NE(body.met, ring.net().node(1).config().incarnation);
  ASSERT_EQ(header.session, ring.net().node(1).exchange().ring_status().session);
  LinkHeader data = header;
  data.kind = PacketKind::kData;
  data.sequence = 0;
  const uint64_t stale = count(Counter::kStaleSession);
  ring.net().inject(1, 0, make_packet(data, {}));
  ring.run_for(1);
  EXPECT_EQ(count(Counter::kStaleSession), stale + 1);
  EXPECT_EQ(count(Counter::kDelivered), 0U);
  ring.net().resume(2);
  EXPECT_TRUE(ring.wait_whole(5 * kSecond));
  EXPECT_TRUE(ring.works());
}

// Late packets of the current session are only duplicates.
TEST(LatePackets, OfTheRunningSessionChangeNothing) {
  Random random(4);
  for (const unsigned world : kWorlds) {
    SCOPED_TRACE(world);
    TestRing ring(slow_ring(world, world));
    Recorder recorder(ring);
    live_through_sessions(ring);
    const uint64_t sessions = ring.net().count(Counter::kSessions);
    for (unsigned round = 0; round < 2; ++round) {
      const auto jobs = ring.start(busy_jobs(world));
      const Nanos end = ring.net().now() + kSecond;
      do {
        recorder.shuffle(random);
        recorder.replay(1 + random.below(100));
        ring.run_for(1 + random.below(100 * kMicrosecond));
      } while (!ring.finish(jobs, 0) && ring.net().now() < end);
      EXPECT_TRUE(ring.succeeded(jobs));
    }
    EXPECT_EQ(ring.net().count(Counter::kSessions), sessions);
  }
}

// Replayed hellos state what was true when they were first sent. They must change nothing, although no rank corrects
// them by a newer hello when the ring is ready.
TEST(LatePackets, HellosOfTheRunningSession) {
  for (const unsigned world : {2U, 3U, 5U}) {
    SCOPED_TRACE(world);
    TestRing ring(slow_ring(world, world));
    Recorder recorder(ring);
    ASSERT_TRUE(ring.wait_whole(kSecond));
    ring.run_for(10 * kMillisecond);
    recorder.stop();
    recorder.keep_only(PacketKind::kHello);
    const uint64_t sessions = ring.net().count(Counter::kSessions);
    for (size_t i = 0; i < recorder.size(); ++i) {
      recorder.replay(1);
      ring.run_for(kMillisecond);
      ASSERT_TRUE(ring.works());
    }
    EXPECT_EQ(ring.net().count(Counter::kSessions), sessions);
  }
}

// Late packets may delay the agreement on a new session, but must not prevent it.
TEST(LatePackets, DoNotKeepARingFromComingUp) {
  Random random(5);
  for (const unsigned world : kWorlds) {
    SCOPED_TRACE(world);
    TestRing ring(slow_ring(world, world));
    Recorder recorder(ring);
    live_through_sessions(ring);
    recorder.stop();
    for (unsigned round = 0; round < 3; ++round) {
      recorder.shuffle(random);
      ring.restart(static_cast<unsigned>(random.below(world)));
      for (unsigned i = 0; i < 100; ++i) {
        recorder.replay(1 + random.below(20));
        ring.run_for(1 + random.below(50 * kMicrosecond));
      }
      EXPECT_TRUE(ring.wait_whole(100 * kMillisecond));
      EXPECT_TRUE(ring.works());
    }
  }
}

}  // namespace
}  // namespace gradlane::test::session_test
