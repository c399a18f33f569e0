// fit_test.cc - tests that figures of a calibration are found again from times that the model computes from them
#include "collectives/cost/fit.h"

#include <gtest/gtest.h>

namespace gradlane::test::fit_test {
namespace {

TEST(Fit, Bandwidth) {
  // The latency is 1 ms, and `at_once` bytes pass without taking time.
  const auto timed = [](double bytes, double rate, double at_once) {
    return TimedBytes{bytes, 1e-3 + (bytes - at_once) / rate};
  };
  EXPECT_NEAR(bandwidth_of(timed(1e6, 1.25e8, 64e3), timed(4e6, 1.25e8, 64e3), 1e-3), 1.25e8, 1);
  EXPECT_NEAR(bandwidth_of(timed(1e6, 1.25e8, 500e3), timed(4e6, 1.25e8, 500e3), 0), 1.25e8, 1);
  // Times that cannot be right are not used. The bandwidth is then that of the longer transfer.
  EXPECT_DOUBLE_EQ(bandwidth_of({1e6, 0.02}, {4e6, 0.02}, 0), 2e8);
  EXPECT_DOUBLE_EQ(bandwidth_of({1e6, 0.03}, {4e6, 0.02}, 0), 2e8);
  EXPECT_DOUBLE_EQ(bandwidth_of({1e6, 0.0070}, {4e6, 0.02}, 0), 2e8);
  EXPECT_NEAR(bandwidth_of({1e6, 0.0199}, {4e6, 0.02}, 1), 2e9, 1e3);  // a delay cannot be longer than the transfer
  EXPECT_EQ(bandwidth_of({}, {}, 0), 0);
}

TEST(Fit, WireBytes) {
  PacketCost packets;
  packets.payload = 1000;
  packets.overhead = 100;
  EXPECT_DOUBLE_EQ(wire_bytes(packets, 10), 110);
  EXPECT_DOUBLE_EQ(wire_bytes(packets, 2000), 2200);
}

Calibration measured() {
  Calibration calibration = usual_calibration(PlanPort::kUdp);
  calibration.link = {0, 1, 50e-6, 1.25e8};
  return calibration;
}

TEST(Fit, PortAndStart) {
  for (const unsigned world : {2U, 4U, 16U}) {
    const Calibration all = measured();
    const double port = all.packets.send_ns + all.packets.receive_ns + 2 * all.packets.call_ns / all.packets.per_call;
    const AllReduceShape shape = {1 << 22, world, {}};
    const AllReduceTime time = all_reduce_time(all, *all.find("raw"), shape);
    // The time is that of codec, exchange and port.
    EXPECT_NEAR(port_ns_of(all, shape, 3 * (time.codec + time.packets), 3 * time.sent_packets), port, 1e-3) << world;
    // Four workers that slow each other down give the same figure: the port's figure does not include contention.
    Calibration four = all;
    four.lanes = 4;
    four.contention = 1.3;
    const AllReduceTime beside = all_reduce_time(four, *four.find("raw"), shape);
    EXPECT_NEAR(port_ns_of(four, shape, 4 * (beside.codec + beside.packets), beside.sent_packets), port, 1e-3) << world;
    EXPECT_EQ(port_ns_of(all, shape, 0, time.sent_packets), 0);
    EXPECT_EQ(port_ns_of(all, shape, 1, 0), 0);

    const AllReduceShape small = {1024, world, {}};
    const CodecCost& raw = *all.find("raw");
    EXPECT_NEAR(start_of(all, raw, small, all_reduce_time(all, raw, small).seconds), all.start, 1e-12);
    EXPECT_EQ(start_of(all, raw, small, 0), 0);
  }
}

TEST(Fit, CodecsInPlace) {
  for (const unsigned lanes : {1U, 4U}) {
    Calibration all = measured();
    all.lanes = lanes;
    all.contention = lanes > 1 ? 1.3 : 1;
    const AllReduceShape shape = {1 << 22, 4, {}};
    CodecCost codec = *all.find("signsgd");
    codec.place_ns = 0.75;
    // On a fast link the cores limit the time, so the time of the operation gives the figure.
    all.link.bandwidth = 1.25e10;
    const AllReduceTime fast = all_reduce_time(all, codec, shape);
    EXPECT_NEAR(place_ns_of(all, codec, shape, {fast.seconds, 0}), codec.place_ns, 1e-6) << lanes;
    // The busy time of the workers gives the figure on a slow link.
    all.link.bandwidth = 1.25e7;
    const AllReduceTime slow = all_reduce_time(all, codec, shape);
    const double busy = lanes * (slow.codec + slow.packets);
    EXPECT_NEAR(place_ns_of(all, codec, shape, {slow.seconds, busy}), codec.place_ns, 1e-6) << lanes;
    EXPECT_EQ(place_ns_of(all, codec, shape, {slow.seconds, 0}), 0);
    EXPECT_EQ(place_ns_of(all, codec, {0, 4, {}}, {1, 1}), 0);
  }
}

TEST(Fit, Latency) {
  EXPECT_NEAR(latency_of(100e-6, 4000), 46e-6, 1e-12);
  // a tenth of half the round trip: the ports' times exceed the round trip of a probe
  EXPECT_NEAR(latency_of(10e-6, 50000), 0.5e-6, 1e-12);
}

}  // namespace
}  // namespace gradlane::test::fit_test
