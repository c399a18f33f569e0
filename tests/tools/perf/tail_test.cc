// tail_test.cc - percentiles, and results in the formats of other tools
#include "tools/perf/tail.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "tools/perf/formats.h"

namespace gradlane::test::tail_test {

TEST(TailTest, IsByNearestRank) {
  std::vector<double> samples(1000);
  std::iota(samples.rbegin(), samples.rend(), 1.0);
  const Tail tail = tail_of(samples);
  EXPECT_EQ(tail.p50, 500);
  EXPECT_EQ(tail.p90, 900);
  EXPECT_EQ(tail.p99, 990);
  EXPECT_EQ(tail.p999, 999);
  EXPECT_EQ(tail.most, 1000);
  EXPECT_DOUBLE_EQ(tail.ratio(), 1.98);
}

TEST(TailTest, OfFewSamplesTheSlowestIsTheTail) {
  const Tail tail = tail_of({3, 1, 2});
  EXPECT_EQ(tail.p50, 2);
  EXPECT_EQ(tail.p90, 3);
  EXPECT_EQ(tail.p999, 3);
  EXPECT_EQ(tail_of({7}).p50, 7);
  EXPECT_EQ(tail_of({}).ratio(), 0);
}

// Returns rows in the order of measurements: sizes ascend, and each size has all codecs.
std::vector<PerfRow> rows() {
  std::vector<PerfRow> all;
  for (const size_t bytes : {size_t{1024}, size_t{1} << 20}) {
    for (const char* const codec : {"raw", "fixed:10"}) {
      PerfRow row;
      row.strategy = "ring";
      row.codec = codec;
      row.bytes = bytes;
      row.count = bytes / 4;
      row.mean_us = 12345.6;
      row.least_us = 100;
      row.most_us = 20000;
      row.tail = {12000, 13000, 14000, 15000, 16000};
      row.wrong = bytes == 1024 && row.codec == "raw" ? 3 : 0;
      all.push_back(row);
    }
  }
  return all;
}

PerfSettings plan_of(const char* format, bool percentiles) {
  PerfOptions options;
  options.format = format;
  options.percentiles = percentiles;
  return make_perf_settings(options);
}

TEST(PerfFormatsTest, OsuHasATableForEachCodec) {
  const std::string text = osu_text(plan_of("osu", true), rows());
  const std::string head =
      "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations  P50 Tail Lat(us)  P90 Tail Lat(us)"
      "  P99 Tail Lat(us)        Validation\n";
  const std::string row =
      "1024                12345.60            100.00          20000.00         200          12000.00          13000.00"
      "          14000.00              ";
  EXPECT_NE(text.find("codec raw\n# Datatype: MPI_FLOAT.\n" + head + row + "Fail\n1048576 "), std::string::npos)
      << text;
  EXPECT_NE(text.find("codec fixed:10\n# Datatype: MPI_FLOAT.\n" + head + row + "Pass\n"), std::string::npos) << text;
}

TEST(PerfFormatsTest, NcclHasNothingOutOfPlace) {
  const std::string text = nccl_text(plan_of("nccl", false), 4, rows());
  EXPECT_NE(text.find("     1048576        262144     float     sum      -1      N/A     N/A     N/A    N/A    12346"
                      "    0.08    0.13      0\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("# Out of bounds values : 3 FAILED\n"), std::string::npos) << text;
  EXPECT_NE(text.find("# Out of bounds values : 0 OK\n"), std::string::npos) << text;
}

TEST(PerfPlanTest, RefusesWhatDoesNotGoTogether) {
  const auto refused = [](auto change) {
    PerfOptions options;
    change(options);
    EXPECT_THROW((void)make_perf_settings(options), SetupError);
  };
  refused([](PerfOptions& it) { it.format = "csv"; });
  refused([](PerfOptions& it) { it.format = "osu", it.json = true; });
  refused([](PerfOptions& it) { it.format = "nccl", it.percentiles = true; });
  refused([](PerfOptions& it) { it.background = "1"; });
  refused([](PerfOptions& it) { it.background = "3", it.concurrent = "2"; });
  refused([](PerfOptions& it) { it.interface = "lo"; });
  refused([](PerfOptions& it) { it.concurrent = "65"; });
  refused([](PerfOptions& it) { it.concurrent = "2", it.feedback = true; });
  refused([](PerfOptions& it) { it.concurrent = "2", it.together = {"3"}; });
}

}  // namespace gradlane::test::tail_test
