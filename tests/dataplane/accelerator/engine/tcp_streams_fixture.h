// tcp_streams_fixture.h - one connection, with its floats as sent and as the codec returns them, for tests of
// TcpStreams
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "base/time.h"
#include "dataplane/accelerator/engine/record.h"
#include "dataplane/accelerator/engine/tcp_streams.h"
#include "tests/compress/test_floats.h"

namespace gradlane::accel::test {

using Treatment = TcpStreams::Treatment;

inline constexpr FlowKey kKey{0x0a4d0001, 0x0a4d0002, 5000, 40000, kTcpProtocol};
inline constexpr Nanos kIdleTime = 600 * kSecond;
inline constexpr Nanos kClosing = 10 * kSecond;

// One connection with ISN 999, so byte 0 has sequence number 1000. Positions below count from byte 0.
class TcpStreamsTest : public testing::Test {
 protected:
  static constexpr uint32_t kBase = 1000;

  TcpStreamsTest() {
    exact_.resize(20'000);
    gradlane::test::Rng random(1);
    for (size_t i = 0; i < exact_.size() / 4; ++i) {
      const auto value = std::bit_cast<float>((random.bits() & 0x807fffff) | 120u << 23);
      std::memcpy(&exact_[i * 4], &value, 4);
    }
    std::vector<uint8_t> record(exact_.size());
    const size_t bytes = write_record(codec_, exact_, 0, record);
    lossy_.resize(exact_.size());
    EXPECT_EQ(read_record(codec_, std::span(record).first(bytes), lossy_), RecordFault::kNone);
  }

  [[nodiscard]] Segment segment(size_t begin, size_t bytes, uint8_t flags = kAck) const {
    return {.key = kKey, .seq = base_ + static_cast<uint32_t>(begin), .ack = 77, .flags = flags, .bytes = bytes};
  }
  TcpStreams::Decision send(const Segment& it) { return streams_.from_host(it, now_); }
  Treatment treated(size_t begin, size_t bytes, uint8_t flags = kAck) {
    return send(segment(begin, bytes, flags)).treatment;
  }
  void open() {
    EXPECT_EQ(treated(0, 0, kAck), Treatment::kUntouched);  // the connection is not known yet
    Segment syn = segment(0, 0, kSyn);
    --syn.seq;
    EXPECT_EQ(send(syn).treatment, Treatment::kUntouched);
    EXPECT_EQ(treated(0, 0), Treatment::kUntouched);
  }
  // Sends a fresh segment, compressed.
  void compress(size_t begin, size_t bytes) {
    const TcpStreams::Decision decision = send(segment(begin, bytes));
    ASSERT_EQ(decision.treatment, Treatment::kFresh);
    std::vector<uint8_t> record(bytes);
    record.resize(write_record(codec_, std::span(exact_).subspan(begin, bytes), decision.lead, record));
    ASSERT_FALSE(record.empty());
    ASSERT_TRUE(streams_.remember(decision, segment(begin, bytes), record));
    last_record_ = record;
  }
  // Expects that this retransmission is overwritten. `pieces` divides its payload into ranges: a number of bytes, and
  // 'l' if they must be lossy or 'e' if they must be exact.
  void expect_overwritten(const Segment& it, const std::vector<std::pair<size_t, char>>& pieces) {
    const TcpStreams::Decision decision = send(it);
    ASSERT_EQ(decision.treatment, Treatment::kSentBefore);
    std::vector<uint8_t> scratch(it.bytes);
    EXPECT_EQ(streams_.again(decision, it, scratch), 0u);
    const size_t begin = it.seq - base_;
    const auto from = exact_.begin() + static_cast<ptrdiff_t>(begin);
    std::vector<uint8_t> payload(from, from + static_cast<ptrdiff_t>(it.bytes));
    EXPECT_TRUE(streams_.overwrite(decision, it, payload));
    size_t at = 0;
    for (const auto& [bytes, kind] : pieces) {
      const std::vector<uint8_t>& expected = kind == 'l' ? lossy_ : exact_;
      EXPECT_EQ(std::memcmp(&payload[at], &expected[begin + at], bytes), 0) << at << kind;
      at += bytes;
    }
    EXPECT_EQ(at, it.bytes);
  }
  void acknowledge(size_t position, uint8_t flags = kAck) {
    streams_.from_wire(
        {.key = kKey.reversed(), .seq = 77, .ack = base_ + static_cast<uint32_t>(position), .flags = flags}, now_);
  }
  // Sweeps often enough for the whole table.
  void sweep_at(Nanos now) {
    now_ = now;
    for (size_t i = 0; i < 100; ++i) streams_.sweep(now_);
  }

  Codec codec_ = find_codec("fixed:10");
  std::vector<uint8_t> exact_, lossy_, last_record_;
  TcpStreams streams_{codec_, {.streams = 64, .memory = 1 << 20, .seed = 3, .idle = kIdleTime, .closing = kClosing}};
  Nanos now_ = 5 * kSecond;
  uint32_t base_ = kBase;
};

}  // namespace gradlane::accel::test
