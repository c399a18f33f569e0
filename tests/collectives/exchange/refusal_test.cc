// refusal_test.cc - tests of nodes with different configurations, which refuse each other and report the difference
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/collectives/exchange/failure_fixture.h"

namespace gradlane::test::refusal_test {
namespace {

uint64_t codec_value(const Codec& codec) { return static_cast<uint64_t>(codec.id()) << 8 | codec.param(); }

// One field in which node 1 differs from the others.
struct Difference {
  Field field;
  const char* name;  // name in failure_text()
  std::function<void(ExchangeConfig&)> change;
  std::function<uint64_t(const ExchangeConfig&)> value;
  std::function<std::string(uint64_t)> text;
};

std::vector<Difference> differences() {
  const auto number = [](uint64_t value) { return std::to_string(value); };
  const auto hex = [](uint64_t value) {
    const char* const digits = "0123456789abcdef";
    std::string text = "0x";
    for (int shift = 60; shift >= 0; shift -= 4) text += digits[value >> shift & 15];
    return text;
  };
  const auto codec = [](uint64_t value) {
    return find_codec(static_cast<CodecId>(value >> 8), static_cast<uint8_t>(value), Isa::kScalar)->name();
  };
  return {
      // The digest of the configuration also changes. Alone it would not name the difference.
      {Field::kLanes, "workers.lanes",
       [](ExchangeConfig& c) {
         c.settings.lanes = 2;
         c.rank_table = 0xabcd;
       },
       [](const ExchangeConfig& c) { return uint64_t{c.settings.lanes}; }, number},
      {Field::kTrainers, "trainers",
       [](ExchangeConfig& c) {
         c.settings.trainers = 2;
         c.rank_table = 0xabcd;
       },
       [](const ExchangeConfig& c) { return uint64_t{c.settings.trainers}; }, number},
      {Field::kWorld, "number of ranks", [](ExchangeConfig& c) { c.world = 7; },
       [](const ExchangeConfig& c) { return uint64_t{c.world}; }, number},
      {Field::kRankTable, "rank table", [](ExchangeConfig& c) { c.rank_table = 0xfedcba9876543210; },
       [](const ExchangeConfig& c) { return c.rank_table; }, hex},
      {Field::kMtu, "mtu", [](ExchangeConfig& c) { c.mtu = 1000; },
       [](const ExchangeConfig& c) { return uint64_t{c.mtu}; }, number},
      {Field::kCodec, "codec", [](ExchangeConfig& c) { c.codec = find_codec("inceptionn:9"); },
       [](const ExchangeConfig& c) { return codec_value(c.codec); }, codec},
  };
}

// A ring in which node 1 differs until `odd` is false.
struct OddRing {
  OddRing(unsigned world, const std::function<void(ExchangeConfig&)>& change, double loss = 0)
      : ring([&] {
          SimConfig config = slow_ring(world, world, loss);
          config.exchange.rank_table = 0x1234;
          config.exchange.settings = {.nodes = 3, .trainers = 1, .lanes = 1, .udp_port = 18400, .addresses = 0x5678};
          config.adjust = [this, change](unsigned node, ExchangeConfig& each) {
            if (node == 1 && odd) change(each);
          };
          return config;
        }()) {}

  [[nodiscard]] const ExchangeConfig& config(unsigned node) { return ring.net().node(node).config(); }

  bool odd = true;
  TestRing ring;
};

const JobSpec kJob = {.kind = OpKind::kAllReduce, .count = 3000, .type = ElementType::kInt32};

// Checks that `rank` reports the difference of its neighbour `other`.
void expect_refused(OddRing& odd, size_t job, unsigned rank, unsigned other, const Difference& difference) {
  const SimCompletion* const end = odd.ring.end_of(job, rank);
  ASSERT_NE(end, nullptr) << rank;
  const uint64_t ours = difference.value(odd.config(rank));
  const uint64_t theirs = difference.value(odd.config(other));
  const Failure expected = {FailureCode::kRefused, static_cast<uint16_t>(other), difference.field, ours, theirs};
  EXPECT_EQ(end->failure, expected) << failure_text(end->failure);
  EXPECT_EQ(failure_text(end->failure), "rank " + std::to_string(other) +
                                            " is configured differently: " + difference.name + ": " +
                                            difference.text(ours) + " here, " + difference.text(theirs) + " there");
}

TEST(Refusal, TwoNodesRefuseEachOther) {
  for (const Difference& difference : differences()) {
    for (const double loss : {0.0, 0.2}) {
      SCOPED_TRACE(testing::Message() << difference.name << ", loss " << loss);
      OddRing odd(2, difference.change, loss);
      TestRing& ring = odd.ring;
      for (unsigned round = 0; round < 3; ++round) {  // several times, with the same result
        const size_t job = ring.start(kJob);
        EXPECT_TRUE(ring.finish({&job, 1}, 100 * kMillisecond));
        expect_refused(odd, job, 0, 1, difference);
        // A node 1 that is configured for a larger world expects another rank as its successor, so its error differs.
        if (difference.field != Field::kWorld) expect_refused(odd, job, 1, 0, difference);
      }
      EXPECT_GT(ring.net().count(Counter::kHelloRefused), 0U);
      odd.odd = false;
      ring.restart(1);
      ring.run_for(500 * kMillisecond);
      EXPECT_TRUE(ring.works());
    }
  }
}

// In a larger ring, both neighbours refuse the odd rank. Ranks further away only learn which rank was refused, or which
// one refused it.
TEST(Refusal, InALargerRing) {
  for (const unsigned world : {3U, 4U, 8U}) {
    for (const Difference& difference : differences()) {
      for (const double loss : {0.0, 0.2}) {
        SCOPED_TRACE(testing::Message() << "world " << world << ", " << difference.name << ", loss " << loss);
        OddRing odd(world, difference.change, loss);
        TestRing& ring = odd.ring;
        ring.run_for(50 * kMillisecond);  // every rank has received hellos of its neighbours
        const size_t job = ring.start(kJob);
        EXPECT_TRUE(ring.finish({&job, 1}, 200 * kMillisecond));
        for (unsigned rank = 0; rank < world; ++rank) {
          EXPECT_TRUE(ring.failed(job, rank, {FailureCode::kRefused, {0, 1, 2}})) << rank;
        }
        expect_refused(odd, job, 0, 1, difference);
        expect_refused(odd, job, 2, 1, difference);
        odd.odd = false;
        ring.restart(1);
        ring.run_for(500 * kMillisecond);
        EXPECT_TRUE(ring.works());
      }
    }
  }
}

// A node restarts with another configuration in the middle of operations.
TEST(Refusal, AfterARestart) {
  for (const unsigned world : {2U, 3U, 4U}) {
    for (const Difference& difference : differences()) {
      SCOPED_TRACE(testing::Message() << "world " << world << ", " << difference.name);
      OddRing odd(world, difference.change);
      TestRing& ring = odd.ring;
      odd.odd = false;
      ring.restart(1);
      ASSERT_TRUE(ring.wait_whole(kSecond));
      const auto jobs = ring.start(busy_jobs(world));
      ring.run_for(500 * kMicrosecond);
      odd.odd = true;
      ring.restart(1);
      // The other ranks refuse hellos of the new node 1, so they only notice that the earlier node 1 is silent.
      EXPECT_TRUE(ring.finish(jobs, 2 * kSecond, {1}));
      EXPECT_TRUE(ring.ended(jobs, {FailureCode::kSilent, {1}}, {1}));
      const size_t job = ring.start(kJob);
      EXPECT_TRUE(ring.finish({&job, 1}, 100 * kMillisecond));
      expect_refused(odd, job, 0, 1, difference);
      odd.odd = false;
      ring.restart(1);
      ring.run_for(500 * kMillisecond);
      EXPECT_TRUE(ring.works());
    }
  }
}

// ---- Ranks

TEST(Refusal, TwoNodesWithTheSameRank) {
  for (const unsigned world : {3U, 4U}) {
    SCOPED_TRACE(world);
    OddRing odd(world, [](ExchangeConfig& config) { config.rank = 2; });
    TestRing& ring = odd.ring;
    ring.run_for(50 * kMillisecond);
    const size_t job = ring.start(kJob);
    EXPECT_TRUE(ring.finish({&job, 1}, 200 * kMillisecond));
    for (unsigned rank = 0; rank < world; ++rank) {
      const SimCompletion* const end = ring.end_of(job, rank);
      ASSERT_NE(end, nullptr) << rank;
      EXPECT_EQ(end->failure.code, FailureCode::kRefused) << failure_text(end->failure);
    }
    // Node 0 expects rank 1 at that address, but finds rank 2.
    const Failure expected = {FailureCode::kRefused, 1, Field::kRank, 1, 2};
    EXPECT_EQ(ring.end_of(job, 0)->failure, expected) << failure_text(ring.end_of(job, 0)->failure);
    odd.odd = false;
    ring.restart(1);
    ring.run_for(500 * kMillisecond);
    EXPECT_TRUE(ring.works());
  }
}

// ---- Versions

// Makes every packet of node 1 look like one of another version, for as long as it exists.
class OtherVersion {
 public:
  explicit OtherVersion(TestRing& ring, uint8_t version) : ring_(ring), version_(version) {
    ring.net().set_filter([this](unsigned from, unsigned to, std::span<const uint8_t> packet) {
      if (from != 1) return true;
      Bytes changed(packet.begin(), packet.end());
      auto header = load<LinkHeader>(changed.data());
      header.version = version_;
      store(changed.data(), header);
      seal(changed);
      ring_.net().inject(to, from, changed);
      return false;
    });
  }
  ~OtherVersion() { ring_.net().set_filter(nullptr); }
  OtherVersion(const OtherVersion&) = delete;
  OtherVersion& operator=(const OtherVersion&) = delete;

 private:
  TestRing& ring_;
  uint8_t version_;
};

TEST(Refusal, OfAnotherVersion) {
  for (const unsigned world : {2U, 4U}) {
    for (const uint8_t version :
         {uint8_t{0}, uint8_t{kProtocolVersion - 1}, uint8_t{kProtocolVersion + 1}, uint8_t{255}}) {
      SCOPED_TRACE(testing::Message() << "world " << world << ", version " << unsigned{version});
      TestRing ring(slow_ring(world, world));
      {
        const OtherVersion other(ring, version);
        ring.run_for(20 * kMillisecond);
        const size_t job = ring.make(kJob);
        // Node 1 itself has this version, and does not know how its packets look.
        for (unsigned rank = 0; rank < world; ++rank) {
          if (rank != 1) ring.submit(job, rank);
        }
        EXPECT_TRUE(ring.finish({&job, 1}, 100 * kMillisecond, {1}));
        const Failure expected = {FailureCode::kRefused, 1, Field::kVersion, kProtocolVersion, version};
        const Failure failure = ring.end_of(job, 0)->failure;
        EXPECT_EQ(failure, expected);
        EXPECT_EQ(failure_text(failure),
                  "rank 1 is configured differently: protocol version: " + std::to_string(kProtocolVersion) +
                      " here, " + std::to_string(version) + " there");
        EXPECT_GT(ring.net().count(Counter::kBadVersion), 0U);
      }
      ring.run_for(500 * kMillisecond);
      EXPECT_TRUE(ring.works());
    }
  }
}

// Two nodes of this version receive only packets of another version from each other. A node answers a hello of another
// version, because otherwise one side would never learn the reason.
TEST(Refusal, OfAnotherVersionOnBothSides) {
  TestRing ring(slow_ring(2, 1));
  ring.net().set_filter([&ring](unsigned from, unsigned to, std::span<const uint8_t> packet) {
    Bytes changed(packet.begin(), packet.end());
    changed[offsetof(LinkHeader, version)] = static_cast<uint8_t>(10 + from);
    seal(changed);
    ring.net().inject(to, from, changed);
    return false;
  });
  const size_t job = ring.start(kJob);
  EXPECT_TRUE(ring.finish({&job, 1}, 100 * kMillisecond));
  for (unsigned rank = 0; rank < 2; ++rank) {
    const Failure expected = {FailureCode::kRefused, static_cast<uint16_t>(1 - rank), Field::kVersion, kProtocolVersion,
                              uint64_t{11} - rank};
    EXPECT_EQ(ring.end_of(job, rank)->failure, expected);
  }
  ring.net().set_filter(nullptr);
  ring.run_for(500 * kMillisecond);
  EXPECT_TRUE(ring.works());
}

// ---- Cost of a refusal

// Nodes that refuse each other go on sending hellos, because the difference may be fixed some day. They do not send
// many.
TEST(Refusal, IsQuiet) {
  OddRing odd(2, differences()[2].change);
  odd.ring.run_for(kSecond);
  const uint64_t before = odd.ring.net().count(Counter::kHelloSent);
  odd.ring.run_for(10 * kSecond);
  const uint64_t per_second = (odd.ring.net().count(Counter::kHelloSent) - before) / 20;
  EXPECT_GE(per_second, 1U);
  EXPECT_LE(per_second, 100U);
}

// ---- Refusals by the owner of the exchange

// Two machines claim to be the same neighbour. Nothing from it is accepted, and all ranks learn the reason.
TEST(Refusal, OfAnOwner) {
  for (const unsigned world : {2U, 3U, 4U}) {
    SCOPED_TRACE(world);
    TestRing ring(slow_ring(world, world));
    const Failure doubled = {FailureCode::kDuplicateRank, 1, Field::kNone, kMacSource | 1, kMacSource | 2};
    EXPECT_TRUE(ring.works());
    const size_t running = ring.start(kJob);
    ring.run_for(100 * kMicrosecond);
    ring.net().node(0).exchange().refuse(doubled);
    EXPECT_TRUE(ring.finish({&running, 1}, kSecond));
    EXPECT_EQ(ring.end_of(running, 0)->failure, doubled) << failure_text(ring.end_of(running, 0)->failure);
    for (unsigned rank = 0; rank < world; ++rank) {
      const SimCompletion* const end = ring.end_of(running, rank);
      ASSERT_NE(end, nullptr) << rank;
      EXPECT_EQ(end->failure, doubled) << rank << ": " << failure_text(end->failure);
    }
    // The refusal ends when the owner stops repeating it.
    ring.run_for(500 * kMillisecond);
    EXPECT_TRUE(ring.works());
  }
}

}  // namespace
}  // namespace gradlane::test::refusal_test
