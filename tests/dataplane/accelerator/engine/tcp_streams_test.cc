// tcp_streams_test.cc - fresh bytes of a TCP stream, and retransmissions of bytes that were sent before
#include <gtest/gtest.h>

#include <tuple>

#include "tests/dataplane/accelerator/engine/tcp_streams_fixture.h"

namespace gradlane::accel::test {
namespace {

using enum StreamFigure;

// ---- Fresh segments, and the position where floats start

TEST_F(TcpStreamsTest, UnknownStreamsAreUntouched) {
  EXPECT_EQ(treated(0, 1448), Treatment::kUntouched);
  Segment from_peer = segment(0, 0, kSyn | kAck);
  from_peer.key = kKey.reversed();
  streams_.from_wire(from_peer, now_);
  EXPECT_EQ(streams_.streams(), 0u);
}

TEST_F(TcpStreamsTest, FloatsStartAtTheFirstDataByte) {
  for (const uint32_t base : {1000u, 1001u, 0xfffffff6u}) {
    base_ = base;
    open();
    EXPECT_EQ(treated(0, 10, kAck | kPsh), Treatment::kFresh);
    for (const auto& [begin, bytes, lead] :
         {std::tuple<size_t, size_t, unsigned>{10, 90, 2}, {100, 101, 0}, {201, 7, 3}, {208, 4, 0}, {213, 100, 3}}) {
      const TcpStreams::Decision decision = send(segment(begin, bytes));
      EXPECT_EQ(decision.treatment, Treatment::kFresh) << begin;
      EXPECT_EQ(decision.lead, lead) << begin;
    }
  }
}

TEST_F(TcpStreamsTest, NoWholeFloatIsUntouched) {
  open();
  EXPECT_EQ(treated(0, 3), Treatment::kUntouched);
  EXPECT_EQ(treated(3, 4), Treatment::kUntouched);
  EXPECT_EQ(treated(7, 5), Treatment::kFresh);
}

TEST_F(TcpStreamsTest, FlaggedSegmentsAreUntouchedAndCount) {
  open();
  EXPECT_EQ(treated(0, 100, kAck | kUrg), Treatment::kUntouched);
  compress(100, 400);
  EXPECT_EQ(treated(50, 50), Treatment::kSentBefore);
  EXPECT_EQ(treated(500, 100, kAck | kFin), Treatment::kUntouched);
  EXPECT_EQ(treated(601, 100), Treatment::kUntouched);  // nothing follows a FIN
}

TEST_F(TcpStreamsTest, SynDataCountsAsSent) {
  Segment syn = segment(0, 50, kSyn);
  --syn.seq;
  EXPECT_EQ(send(syn).treatment, Treatment::kUntouched);
  EXPECT_EQ(treated(0, 500), Treatment::kSentBefore);  // sent in part, so it is exact
  EXPECT_EQ(treated(500, 500), Treatment::kFresh);
}

TEST_F(TcpStreamsTest, AGapIsFreshAndItsBytesAreNot) {
  open();
  compress(1000, 400);
  expect_overwritten(segment(0, 1100), {{1000, 'e'}, {100, 'l'}});
  compress(1400, 400);
  acknowledge(1800);
  EXPECT_EQ(treated(0, 1000), Treatment::kSentBefore);
}

TEST_F(TcpStreamsTest, FarAheadIsNoPartOfTheStream) {
  open();
  EXPECT_EQ(treated(0x40000001, 400), Treatment::kUntouched);
  EXPECT_EQ(streams_.streams(), 0u);
  open();
  compress(0, 400);
  EXPECT_EQ(treated(0x50000000, 400), Treatment::kUntouched);
  EXPECT_EQ(treated(400, 400), Treatment::kUntouched);
  expect_overwritten(segment(0, 399), {{399, 'l'}});
}

// TcpStreams gets no acknowledgements while there are no records. Sequence numbers must wrap around nevertheless.
TEST_F(TcpStreamsTest, SequenceNumbersGoAround) {
  open();
  for (uint64_t position = 0; position < uint64_t{3} << 32; position += 60'000) {
    ASSERT_EQ(treated(static_cast<uint32_t>(position), 60'000), Treatment::kFresh) << position;
  }
}

TEST_F(TcpStreamsTest, AroundTheEndOfNumbers) {
  base_ = 0xffffff00;
  open();
  compress(0, 500);
  compress(500, 500);
  expect_overwritten(segment(100, 800), {{800, 'l'}});
  acknowledge(256);  // sequence number 0
  EXPECT_EQ(streams_.records(), 2u);
  acknowledge(500);
  EXPECT_EQ(streams_.records(), 1u);
  acknowledge(1000);
  EXPECT_EQ(streams_.records(), 0u);
}

// ---- Retransmissions

TEST_F(TcpStreamsTest, SameBoundariesGiveTheSameRecord) {
  open();
  compress(0, 1448);
  const auto first = last_record_;
  compress(1448, 1448);
  std::vector<uint8_t> out(1448);
  for (int i = 0; i < 2; ++i) {
    const TcpStreams::Decision decision = send(segment(0, 1448));
    ASSERT_EQ(decision.treatment, Treatment::kSentBefore);
    ASSERT_EQ(streams_.again(decision, segment(0, 1448), out), first.size());
    EXPECT_EQ(std::memcmp(out.data(), first.data(), first.size()), 0);
  }
  EXPECT_EQ(streams_.again(send(segment(0, 1448)), segment(0, 1448), std::span(out).first(10)), 0u);
  // A packet that must stay uncompressed gets the restored values instead.
  EXPECT_EQ(streams_.again(send(segment(0, 1448, kAck | kUrg)), segment(0, 1448, kAck | kUrg), out), 0u);
  EXPECT_EQ(streams_.figure(kSentAgain), 2u);
}

TEST_F(TcpStreamsTest, OtherBoundariesGetTheValuesThatWereSent) {
  open();
  compress(0, 1001);                                // whole floats up to 1000
  EXPECT_EQ(treated(1001, 99), Treatment::kFresh);  // not remembered, so it is exact
  compress(1100, 1000);
  expect_overwritten(segment(0, 999), {{999, 'l'}});
  expect_overwritten(segment(0, 1002), {{1000, 'l'}, {2, 'e'}});
  expect_overwritten(segment(2, 1448), {{998, 'l'}, {100, 'e'}, {350, 'l'}});
  expect_overwritten(segment(1001, 100), {{99, 'e'}, {1, 'l'}});
  expect_overwritten(segment(1501, 1), {{1, 'l'}});
  expect_overwritten(segment(2098, 5), {{2, 'l'}, {3, 'e'}});  // reaches into new bytes
  // A FIN comes with a retransmission of the last bytes.
  expect_overwritten(segment(1500, 603, kAck | kFin), {{600, 'l'}, {3, 'e'}});
  EXPECT_EQ(streams_.figure(kOverwritten), 7u);
}

TEST_F(TcpStreamsTest, ExactBytesStayAsTheyAre) {
  open();
  compress(0, 400);
  EXPECT_EQ(treated(400, 400), Treatment::kFresh);
  const Segment it = segment(400, 400);
  std::vector<uint8_t> payload(400, 0xaa);
  EXPECT_FALSE(streams_.overwrite(send(it), it, payload));
  EXPECT_EQ(payload, std::vector<uint8_t>(400, 0xaa));
}

TEST_F(TcpStreamsTest, PartlyOldIsOldAsAWhole) {
  open();
  compress(0, 400);
  EXPECT_EQ(treated(399, 500), Treatment::kSentBefore);
  EXPECT_EQ(treated(400, 400), Treatment::kSentBefore);
  EXPECT_EQ(treated(899, 400), Treatment::kFresh);
}

TEST_F(TcpStreamsTest, KeepAliveAndWindowProbes) {
  open();
  compress(0, 400);
  EXPECT_EQ(treated(399, 0), Treatment::kUntouched);
  acknowledge(398);
  EXPECT_EQ(treated(397, 1), Treatment::kSentBefore);
  EXPECT_EQ(treated(400, 1), Treatment::kUntouched);  // a probe of a zero window, with one byte
  EXPECT_EQ(treated(400, 400), Treatment::kSentBefore);
  EXPECT_EQ(treated(800, 400), Treatment::kFresh);
}

TEST_F(TcpStreamsTest, NoMemoryIsExact) {
  TcpStreams small(codec_, {.streams = 8, .memory = 256});
  Segment syn = segment(0, 0, kSyn);
  --syn.seq;
  EXPECT_EQ(small.from_host(syn, 0).treatment, Treatment::kUntouched);
  const TcpStreams::Decision decision = small.from_host(segment(0, 400), 0);
  ASSERT_EQ(decision.treatment, Treatment::kFresh);
  EXPECT_FALSE(small.remember(decision, segment(0, 400), std::vector<uint8_t>(300)));
  EXPECT_EQ(small.from_host(segment(0, 400), 0).treatment, Treatment::kSentBefore);
  EXPECT_EQ(small.figure(kNoMemory), 1u);
}

}  // namespace
}  // namespace gradlane::accel::test
