// hostile_fixture.h - a ring that stands still in the middle of operations, and handmade packets for one of its nodes
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/time.h"
#include "collectives/crc32c.h"
#include "collectives/descriptor.h"
#include "tests/collectives/exchange/failure_fixture.h"

namespace gradlane::test {

inline constexpr unsigned kVictim = 1;  // the middle one of three ranks
inline constexpr unsigned kBefore = 0;
inline constexpr unsigned kBehind = 2;
inline constexpr size_t kElements = 30'000;      // three blocks of 312, 313 and 313 granules of 32 int32
inline constexpr size_t kCodedElements = 9'000;  // three blocks of 94 granules of 32 floats
inline constexpr size_t kGranule = 32;

inline const JobSpec kSum = {.kind = OpKind::kAllReduce, .count = kElements, .type = ElementType::kInt32};
inline const JobSpec kCoded = {.kind = OpKind::kAllReduce, .count = kCodedElements, .codec = "fixed:10"};

// Returns whether the counter counts received packets. Each packet counts in exactly one of these counters.
// Counter::kBadAck counts in addition.
inline bool counts_packets(Counter counter) { return counter <= Counter::kBadAck; }

// Three ranks, of which the last has not submitted the operations yet. The others have started and wait, and nothing
// moves. The victim has the partial sums of block 2 from rank 0, and waits for everything else.
class Hostile : public testing::Test {
 protected:
  Hostile() : ring_(slow_ring(3, 1)) {
    ring_.net().set_tap([this](unsigned from, unsigned to, std::span<const uint8_t> packet) {
      if (!recording_ || to != kVictim || packet.size() < sizeof(LinkHeader)) return;
      const auto header = load<LinkHeader>(packet.data());
      if (header.kind == PacketKind::kHello) {
        hello_[from] = {packet.begin(), packet.end()};
        return;
      }
      if (header.kind == PacketKind::kData) next_[from] = std::max(next_[from], header.sequence + 1);
      header_[from] = header;
    });
  }

  void SetUp() override {
    ASSERT_TRUE(ring_.wait_whole(kSecond));
    sum_ = ring_.make(kSum);
    coded_ = ring_.make(kCoded);
    for (const unsigned rank : {kBefore, kVictim}) {
      ring_.submit(sum_, rank);
      ring_.submit(coded_, rank);
    }
    // The time is now in the middle between two keep-alives. So the victim receives only the injected packets.
    ring_.run_for(130 * kMillisecond);
    recording_ = false;
    ASSERT_TRUE(hello_.contains(kBefore) && hello_.contains(kBehind));
    ASSERT_TRUE(header_.contains(kBefore) && header_.contains(kBehind));
  }

  Exchange& victim() { return ring_.net().node(kVictim).exchange(); }
  uint64_t count(Counter counter) { return victim().counters()[counter]; }

  // Returns the header of a data packet that the neighbour could send next.
  LinkHeader data_header(unsigned from) {
    LinkHeader header = header_[from];
    header.kind = PacketKind::kData;
    header.sequence = next_[from];
    header.echo = 0;
    return header;
  }
  Bytes data(unsigned from, const Bytes& runs) { return make_packet(data_header(from), runs); }
  LinkHeader ack_header(unsigned from) {
    LinkHeader header = data_header(from);
    header.kind = PacketKind::kAck;
    return header;
  }

  // Returns the header of a run of kSum that a neighbour could send next.
  RunHeader run(Phase phase, unsigned block, uint32_t first, size_t elements) {
    return {.operation = 0,
            .digest = digest(kSum.count, ElementType::kInt32, CodecId::kRaw, 0),
            .first = first,
            .count = static_cast<uint16_t>(elements),
            .bytes = 0,
            .block = static_cast<uint8_t>(block),
            .phase = phase,
            .codec = static_cast<uint8_t>(CodecId::kRaw),
            .param = 0};
  }
  static uint32_t digest(size_t count, ElementType type, CodecId codec, uint8_t param) {
    return digest_of(descriptor_of(count, type, codec, param));
  }
  static Descriptor descriptor_of(size_t count, ElementType type, CodecId codec, uint8_t param) {
    Descriptor descriptor{};
    descriptor.count = count;
    descriptor.type = static_cast<uint8_t>(type);
    descriptor.codec = static_cast<uint8_t>(codec);
    descriptor.param = param;
    return descriptor;
  }
  Bytes one_run(const RunHeader& header, size_t payload) {
    Bytes bytes;
    append_run(bytes, header, Bytes(payload));
    return bytes;
  }
  // Returns a run of whole granules.
  Bytes sums(unsigned block, uint32_t first, size_t elements) {
    return one_run(run(Phase::kReduce, block, first, elements), elements * sizeof(int32_t));
  }

  // Injects a packet into the victim. Expects that `expected` counts it, and that all other counters grow only as
  // `also` says.
  void expect_counted(const std::string& what, unsigned from, const Bytes& packet, Counter expected,
                      std::map<Counter, uint64_t> also = {}) {
    std::array<uint64_t, kCounters> before;
    for (size_t i = 0; i < kCounters; ++i) before[i] = count(static_cast<Counter>(i));
    ring_.net().inject(kVictim, from, packet);
    ring_.run_for(1);
    ++also[expected];
    for (size_t i = 0; i < kCounters; ++i) {
      const auto counter = static_cast<Counter>(i);
      if (!counts_packets(counter)) continue;
      EXPECT_EQ(count(counter) - before[i], also[counter]) << what << ": " << counter_name(counter);
    }
  }

  // Submits the operations on the last rank, too. Everything must end as if no packet had been injected.
  void expect_unharmed() {
    const uint64_t sessions = ring_.net().count(Counter::kSessions);
    ring_.submit(sum_, kBehind);
    ring_.submit(coded_, kBehind);
    EXPECT_TRUE(ring_.finish(std::array{sum_, coded_}, kSecond));
    EXPECT_TRUE(ring_.succeeded(std::array{sum_, coded_}));
    EXPECT_TRUE(ring_.works());
    EXPECT_EQ(ring_.net().count(Counter::kSessions), sessions);
  }

  TestRing ring_;
  bool recording_ = true;
  std::map<unsigned, Bytes> hello_;        // latest hello of each neighbour
  std::map<unsigned, LinkHeader> header_;  // header of the latest other packet
  std::map<unsigned, uint32_t> next_;      // next sequence number
  size_t sum_ = 0;
  size_t coded_ = 0;
};

}  // namespace gradlane::test
