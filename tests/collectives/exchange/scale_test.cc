// scale_test.cc - tests of the use of the links by an exchange, in virtual time: goodput, full packets, larger rings
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "tests/collectives/exchange/exchange_fixture.h"

namespace gradlane::test::scale_test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

constexpr size_t kLarge = 32 * kMiB;
const uint64_t kSeeds = thorough() ? 4 : 2;
const std::vector<unsigned> kWorlds = thorough() ? std::vector{2U, 3U, 4U, 8U, 16U} : std::vector{2U, 4U};

struct Measured {
  double seconds = 0;
  double goodput = 0;      // share of what full packets of raw floats could reach
  double ratio = 0;        // uncompressed bytes divided by bytes of packets
  double reduce_fill = 0;  // share of the MTU that packets use
  double gather_fill = 0;
};

// Measures an all-reduce of `bytes` bytes of fp32 on a ring that is ready.
Measured measure(unsigned world, size_t bytes, const std::string& codec, double loss, uint64_t seed = 1,
                 double scale = 0.01) {
  SimConfig config;
  config.nodes = world;
  config.seed = seed;
  config.faults.loss = loss;
  config.exchange.max_bytes = bytes;
  config.exchange.min_rto = kMillisecond;  // less than the default, as no thread here waits for a CPU
  SimNet net(config);
  std::vector<Job> start = make_jobs(std::vector<JobSpec>(1, {.kind = OpKind::kBarrier}), world, 1);
  EXPECT_TRUE(run(net, start));
  const auto sum = [&net](Counter reduce, Counter gather) { return net.count(reduce) + net.count(gather); };
  // The short packets of the barrier are subtracted below.
  const uint64_t reduce_bytes = net.count(Counter::kReduceBytes);
  const uint64_t reduce_packets = net.count(Counter::kReducePackets);
  const uint64_t gather_bytes = net.count(Counter::kGatherBytes);
  const uint64_t gather_packets = net.count(Counter::kGatherPackets);
  const Nanos begin = net.now();

  const JobSpec spec = {.kind = OpKind::kAllReduce, .count = bytes / sizeof(float), .codec = codec, .scale = scale};
  std::vector<Job> jobs = make_jobs(std::span(&spec, 1), world, seed);
  EXPECT_TRUE(run(net, jobs));

  Measured measured;
  measured.seconds = static_cast<double>(net.now() - begin) * 1e-9;
  // A full packet of raw floats has 11 granules in 1472 bytes, and takes 1538 bytes on the wire.
  const double payload_rate = static_cast<double>(config.link.bits_per_second) / 8 * 1408 / 1538;
  const double sent = 2.0 * (world - 1) / world * static_cast<double>(bytes);  // sent by each node
  measured.goodput = sent / measured.seconds / payload_rate;
  const uint64_t packet_bytes = sum(Counter::kReduceBytes, Counter::kGatherBytes) - reduce_bytes - gather_bytes;
  measured.ratio = sent * world / static_cast<double>(packet_bytes);
  const auto fill = [&](Counter total, uint64_t bytes_before, Counter packets, uint64_t packets_before) {
    return static_cast<double>(net.count(total) - bytes_before) /
           static_cast<double>(net.count(packets) - packets_before) / static_cast<double>(config.exchange.mtu);
  };
  measured.reduce_fill = fill(Counter::kReduceBytes, reduce_bytes, Counter::kReducePackets, reduce_packets);
  measured.gather_fill = fill(Counter::kGatherBytes, gather_bytes, Counter::kGatherPackets, gather_packets);
  std::printf("%3u nodes, %2zu MiB, %-13s ratio %4.1f, loss %4.1f %%: %8.3f ms, goodput %5.3f, fill %.3f and %.3f\n",
              world, bytes / kMiB, codec.c_str(), measured.ratio, 100 * loss, measured.seconds * 1e3, measured.goodput,
              measured.reduce_fill, measured.gather_fill);
  if (loss > 0) return measured;
  EXPECT_TRUE(no_retransmits(net));
  EXPECT_EQ(net.stats().queue_drops, 0U);
  return measured;
}

// ---- Goodput at 10 Gb/s and 50 us

void expect_goodput(double loss, double least) {
  for (const unsigned world : kWorlds) EXPECT_GE(measure(world, 16 * kMiB, "raw", loss).goodput, least);
  for (uint64_t seed = 2; seed <= kSeeds; ++seed) {
    EXPECT_GE(measure(4, 16 * kMiB, "raw", loss, seed).goodput, least);
  }
}

TEST(Goodput, WithoutLoss) {
  expect_goodput(0, 0.95);
  EXPECT_GE(measure(4, kLarge, "raw", 0, 2).goodput, 0.95);
}

TEST(Goodput, OneInAThousandLost) { expect_goodput(0.001, 0.85); }

TEST(Goodput, OneInAHundredLost) { expect_goodput(0.01, 0.75); }

// ---- Full packets, however small the data becomes

TEST(Fill, CompressedDataFillsPackets) {
  const std::pair<const char*, double> data[] = {
      {"bf16", 0.01},     {"fixed:10", 3e-4},      {"fixed:10", 1e-3},      {"fixed:10", 1e-2},
      {"fixed:10", 1e-1}, {"inceptionn:10", 1e-4}, {"inceptionn:10", 1e-3}, {"inceptionn:10", 1e-2},
  };
  double least = 100;
  double most = 0;
  for (const unsigned world : kWorlds) {
    if (world < 4) continue;
    for (const double loss : {0.0, 0.01}) {
      for (const auto& [codec, scale] : data) {
        const Measured measured = measure(world, 4 * kMiB, codec, loss, 1, scale);
        EXPECT_GE(measured.reduce_fill, 0.85);
        EXPECT_GE(measured.gather_fill, 0.85);
        least = std::min(least, measured.ratio);
        most = std::max(most, measured.ratio);
      }
    }
  }
  EXPECT_LT(least, 2);
  EXPECT_GT(most, 12);
}

// ---- Growth

// Returns the time by the formula of the ring, plus the latency of the last element.
double expected_seconds(unsigned world, double seconds_of_four) {
  const double p = world;
  const double hop = 25e-6 + 1538 * 8 / 10e9 + 10e-6;  // delay of the link, one packet, ExchangeConfig::max_hold
  return seconds_of_four * (2 * (p - 1) / p) / 1.5 + 2 * (p - 1) * hop;
}

TEST(Growth, TimeIsThatOfFourNodesAndLatency) {
  const struct {
    unsigned world;
    size_t bytes;
  } cases[] = {{16, kLarge}, {64, 8 * kMiB}};
  for (const auto& c : cases) {
    const double four = measure(4, c.bytes, "raw", 0).seconds;
    EXPECT_LE(measure(c.world, c.bytes, "raw", 0).seconds, 1.05 * expected_seconds(c.world, four));
  }
}

}  // namespace
}  // namespace gradlane::test::scale_test
