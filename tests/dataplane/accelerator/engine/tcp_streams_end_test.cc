// tcp_streams_end_test.cc - the packets that start and end the tracking of a TCP connection
#include <gtest/gtest.h>

#include <string>

#include "tests/dataplane/accelerator/engine/tcp_streams_fixture.h"

namespace gradlane::accel::test {
namespace {

using enum StreamFigure;

// ---- Starts

TEST_F(TcpStreamsTest, ASynAgainKeepsTheStream) {
  open();
  compress(0, 400);
  Segment syn = segment(0, 0, kSyn | kAck);
  --syn.seq;
  EXPECT_EQ(send(syn).treatment, Treatment::kUntouched);
  EXPECT_EQ(streams_.records(), 1u);
  EXPECT_EQ(treated(0, 400), Treatment::kSentBefore);
}

TEST_F(TcpStreamsTest, ASynWithAnotherNumberStartsAfresh) {
  open();
  compress(0, 400);
  base_ += 100;
  Segment syn = segment(0, 0, kSyn);
  --syn.seq;
  EXPECT_EQ(send(syn).treatment, Treatment::kUntouched);
  EXPECT_EQ(streams_.records(), 0u);
  EXPECT_EQ(streams_.record_bytes(), 0u);
  EXPECT_EQ(treated(0, 400), Treatment::kFresh);
  EXPECT_EQ(streams_.streams(), 1u);
}

// With SYN cookies, the peer may have answered an earlier SYN-ACK than the latest one that was seen.
TEST_F(TcpStreamsTest, AStartThatDoesNotFitIsGivenUp) {
  for (const uint32_t off : {1u, 5000u, 0x80000000u, 0xffffffffu}) {
    Segment syn = segment(0, 0, kSyn | kAck);
    syn.seq = kBase + off - 1;
    EXPECT_EQ(send(syn).treatment, Treatment::kUntouched);
    EXPECT_EQ(treated(0, 400), Treatment::kUntouched) << off;
    EXPECT_EQ(treated(400, 400), Treatment::kUntouched) << off;
    EXPECT_EQ(streams_.streams(), 0u);
  }
  EXPECT_EQ(streams_.figure(kGiven), 4u);
}

TEST_F(TcpStreamsTest, WithOptionsNothingIsCompressed) {
  Segment syn = segment(0, 0, kSyn);
  --syn.seq;
  syn.plain = false;
  EXPECT_EQ(send(syn).treatment, Treatment::kUntouched);
  EXPECT_EQ(streams_.streams(), 0u);
  open();
  Segment options = segment(0, 400);
  options.plain = false;
  EXPECT_EQ(send(options).treatment, Treatment::kUntouched);
  EXPECT_EQ(treated(400, 400), Treatment::kUntouched);
  EXPECT_EQ(streams_.streams(), 0u);
}

TEST_F(TcpStreamsTest, RecordsOutliveOptions) {
  open();
  compress(0, 400);
  Segment options = segment(400, 400);
  options.plain = false;
  EXPECT_EQ(send(options).treatment, Treatment::kUntouched);
  EXPECT_EQ(treated(800, 400), Treatment::kUntouched);
  expect_overwritten(segment(100, 900), {{300, 'l'}, {600, 'e'}});
  options = segment(0, 400);
  options.plain = false;
  expect_overwritten(options, {{400, 'l'}});
  acknowledge(399);
  EXPECT_EQ(streams_.streams(), 1u);
  acknowledge(1200 + 60000);  // the fragments may have carried that many bytes
  EXPECT_EQ(streams_.streams(), 0u);
  EXPECT_EQ(streams_.records(), 0u);
}

// ---- Ends

TEST_F(TcpStreamsTest, AcknowledgementsFreeRecords) {
  open();
  compress(0, 400);
  compress(400, 400);
  acknowledge(399);
  EXPECT_EQ(streams_.records(), 2u);
  acknowledge(801);  // these bytes were never sent
  EXPECT_EQ(streams_.records(), 2u);
  EXPECT_EQ(streams_.figure(kBadAck), 1u);
  streams_.from_wire({.key = kKey, .ack = base_ + 800, .flags = kAck}, now_);  // the wrong direction
  EXPECT_EQ(streams_.records(), 2u);
  acknowledge(800, kSyn);  // without ACK the field says nothing
  EXPECT_EQ(streams_.records(), 2u);
  acknowledge(400);
  EXPECT_EQ(streams_.records(), 1u);
  acknowledge(800);
  EXPECT_FALSE(streams_.any_records());
  EXPECT_EQ(streams_.record_bytes(), 0u);
  EXPECT_EQ(treated(800, 400), Treatment::kFresh);
}

TEST_F(TcpStreamsTest, AFinEndsTheStreamWhenAllIsAcknowledged) {
  open();
  EXPECT_EQ(treated(0, 400, kAck | kFin), Treatment::kUntouched);
  EXPECT_EQ(streams_.streams(), 0u);
  open();
  compress(0, 400);
  EXPECT_EQ(treated(400, 0, kAck | kFin), Treatment::kUntouched);
  EXPECT_EQ(streams_.streams(), 1u);
  acknowledge(402);  // beyond the FIN
  EXPECT_EQ(streams_.records(), 1u);
  acknowledge(401);
  EXPECT_EQ(streams_.streams(), 0u);
}

TEST_F(TcpStreamsTest, AResetOfTheHostEndsIt) {
  open();
  compress(0, 400);
  EXPECT_EQ(treated(7777, 0, kRst), Treatment::kUntouched);
  EXPECT_EQ(streams_.streams(), 0u);
  EXPECT_EQ(streams_.record_bytes(), 0u);
}

TEST_F(TcpStreamsTest, AResetOfThePeerShortensTheSilence) {
  open();
  compress(0, 400);
  // outside the window: anybody may have sent it
  streams_.from_wire({.key = kKey.reversed(), .seq = 77 + (1 << 20), .flags = kRst}, now_);
  sweep_at(now_ + kClosing + 1);
  EXPECT_EQ(streams_.records(), 1u);
  streams_.from_wire({.key = kKey.reversed(), .seq = 77, .flags = kRst}, now_);
  EXPECT_EQ(treated(0, 400), Treatment::kSentBefore);  // the host goes on sending
  sweep_at(now_ + kClosing + 1);
  EXPECT_EQ(streams_.records(), 1u);
  streams_.from_wire({.key = kKey.reversed(), .seq = 78, .flags = kRst}, now_);
  sweep_at(now_ + kClosing);
  EXPECT_EQ(streams_.records(), 1u);
  sweep_at(now_ + 1);
  EXPECT_EQ(streams_.streams(), 0u);
  EXPECT_EQ(streams_.figure(kIdleRecords), 1u);
}

TEST_F(TcpStreamsTest, SilenceEndsItLate) {
  open();
  compress(0, 400);
  EXPECT_EQ(treated(400, 0, kAck | kFin), Treatment::kUntouched);
  sweep_at(now_ + kIdleTime);
  EXPECT_EQ(streams_.records(), 1u);
  sweep_at(now_ + 1);
  EXPECT_EQ(streams_.streams(), 0u);
  EXPECT_EQ(streams_.records(), 0u);
  EXPECT_EQ(streams_.figure(kIdle), 1u);
}

TEST_F(TcpStreamsTest, AThousandConnectionsLeaveNothing) {
  for (uint32_t i = 0; i < 1000; ++i) {
    base_ += 77'777'777;
    open();
    compress(0, 1448);
    compress(1448, 1448);
    acknowledge(1448);
    EXPECT_EQ(treated(2896, 0, kAck | kFin), Treatment::kUntouched);
    acknowledge(2897);
    ASSERT_EQ(streams_.streams(), 0u);
    ASSERT_EQ(streams_.record_bytes(), 0u);
  }
  EXPECT_EQ(streams_.figure(kBegun), 1000u);
  EXPECT_EQ(streams_.figure(kEnded), 1000u);
}

TEST(TcpStreamsFigures, HaveNames) {
  for_each_counter<StreamFigure>([](const auto& row) { EXPECT_EQ(std::string(row.name).rfind("stream_", 0), 0u); });
}

}  // namespace
}  // namespace gradlane::accel::test
