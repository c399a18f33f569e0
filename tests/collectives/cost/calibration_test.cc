// calibration_test.cc - tests of calibrations: widths of sums, and which calibrations are refused
#include "collectives/cost/calibration.h"

#include <gtest/gtest.h>

#include "compress/codec.h"

namespace gradlane::test::calibration_test {
namespace {

TEST(Calibration, WidthsOfSums) {
  const Calibration usual = usual_calibration(PlanPort::kUdp);
  EXPECT_EQ(usual.find("raw")->width(64), 4);
  EXPECT_EQ(usual.find("nothing"), nullptr);
  const CodecCost& lattice = *usual.find("fixed:10");
  EXPECT_LT(lattice.width(1), lattice.width(2));
  EXPECT_DOUBLE_EQ(lattice.width(4) - lattice.width(1), 2 * lattice.doubling);
  const CodecCost& sparse = *usual.find("dgc:1%");
  EXPECT_NEAR(sparse.width(1), sparse.bytes, 1e-12);
  EXPECT_NEAR(sparse.width(2) / sparse.width(1), 1.99, 1e-9);  // one element in a hundred is in both
  EXPECT_LE(sparse.width(100000), sparse.bytes / sparse.density);
  const CodecCost& votes = *usual.find("signsgd");
  EXPECT_DOUBLE_EQ(votes.result_width(64), votes.bytes);
  const CodecCost& chunks = *usual.find("qsgd:4");
  EXPECT_DOUBLE_EQ(chunks.result_width(64), chunks.bytes);
}

TEST(Calibration, UsualCodecsAreCodecs) {
  for (const CodecCost& each : usual_calibration(PlanPort::kCard).codecs) {
    const Codec codec = find_codec(each.name);
    EXPECT_EQ(codec.name(), each.name);
    EXPECT_EQ(codec.row().is_additive, !each.owners) << each.name;
    EXPECT_EQ(codec.row().exact(), each.exact) << each.name;
    EXPECT_EQ(codec.row().passes != 0, each.look_ns != 0) << each.name;
  }
}

TEST(Calibration, FullPackets) {
  PacketCost packets;
  packets.set_mtu(1500);
  EXPECT_EQ(packets.payload, 1408);
  EXPECT_EQ(packets.payload + packets.overhead, 1538);
  EXPECT_EQ(packets.mtu(), 1500);
}

// A plan without compression uses packets of the same size.
TEST(Calibration, PlainHasTheSameMtu) {
  Calibration usual = usual_calibration(PlanPort::kUdp);
  EXPECT_EQ(ideal_calibration(usual).packets.payload, 1448);
  EXPECT_EQ(ideal_calibration(usual).packets.overhead, 90);
  usual.packets.set_mtu(9000);
  EXPECT_EQ(ideal_calibration(usual).packets.payload, 8948);
  EXPECT_EQ(ideal_calibration(usual).packets.overhead, 90);
}

TEST(Calibration, SlowestLink) {
  const LinkCost fallback = {0, 0, 1, 2};
  EXPECT_EQ(slowest({}, fallback).latency, 1);
  const LinkCost worst = slowest({{0, 1, 1e-5, 1e9}, {1, 0, 2e-5, 2e9}}, fallback);
  EXPECT_EQ(worst.latency, 2e-5);
  EXPECT_EQ(worst.bandwidth, 1e9);
}

TEST(Calibration, StaleAndForeign) {
  Calibration made;
  made.host = "a";
  made.cpu = "c";
  made.isa = "avx2";
  made.program = "1";
  made.made = "2026-11-23T00:00:00Z";
  made.made_s = 1'000'000;
  CalibrationUse use = {"a", "c", "avx2", "1", 1'000'100};
  EXPECT_EQ(calibration_fault(made, use), "");
  const auto with = [&use, &made](auto change) {
    CalibrationUse other = use;
    change(other);
    return calibration_fault(made, other);
  };
  EXPECT_EQ(with([](CalibrationUse& u) { u.host = "b"; }), "it was measured on host 'a', but here it is 'b'");
  EXPECT_NE(with([](CalibrationUse& u) { u.cpu = "d"; }), "");
  EXPECT_NE(with([](CalibrationUse& u) { u.isa = "avx512"; }), "");
  EXPECT_NE(with([](CalibrationUse& u) { u.program = "2"; }), "");
  EXPECT_NE(with([](CalibrationUse& u) { u.now_s += u.longest_s; }).find("30 days ago"), std::string::npos);
  EXPECT_NE(with([](CalibrationUse& u) { u.now_s = 0; }).find("future"), std::string::npos);
  made.version = 7;
  EXPECT_NE(calibration_fault(made, use).find("version 7"), std::string::npos);
}

TEST(Links, BothDirectionsApart) {
  std::vector<LinkCost> links = {{0, 1, 1e-5, 1e9}, {1, 0, 1e-5, 1.6e9}, {1, 2, 1e-5, 1e8}};
  mark_unsteady(links);
  EXPECT_TRUE(links[0].unsteady && links[1].unsteady);
  EXPECT_FALSE(links[2].unsteady);
  links = {{0, 1, 1e-5, 1e9}, {1, 0, 1e-5, 1.4e9}};
  mark_unsteady(links);
  EXPECT_FALSE(links[0].unsteady || links[1].unsteady);
}

}  // namespace
}  // namespace gradlane::test::calibration_test
