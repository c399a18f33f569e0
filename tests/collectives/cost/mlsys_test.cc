// mlsys_test.cc - tests of the model of MLSys'22 with its formulas and with what was published
#include "collectives/cost/mlsys.h"

#include <gtest/gtest.h>

namespace gradlane::test::mlsys_test {
namespace {

// Three buckets of 25 MiB and one byte, five workers: the last bucket is the byte.
TEST(Mlsys, SyncByTheFormula) {
  const MlsysCluster cluster = {.workers = 5, .bandwidth = 1e9, .lambda = 1.1};
  const double bucket = 2 * 25 * 1048576.0 * 4 / 5 / 1e9;
  const double byte = 2 * 4 / 5.0 / 1e9;
  EXPECT_DOUBLE_EQ(mlsys_sync(cluster, 0.01, 3 * kMlsysBucket + 1), 3 * bucket + byte);
  EXPECT_DOUBLE_EQ(mlsys_sync(cluster, 1, 3 * kMlsysBucket + 1), 1.1 + byte);
  EXPECT_DOUBLE_EQ(mlsys_sync(cluster, 1, kMlsysBucket), 1.1 + bucket);
}

// A matrix of 300 x 100 and a vector of 50, five workers, 1 GB/s. T_encdec is that of ResNet-50 by elements.
TEST(Mlsys, CodecsByTheFormula) {
  ModelTable model;
  model.layers = {{"matrix", 30000, 300, 100}, {"vector", 50}};
  const MlsysCluster cluster = {.workers = 5, .bandwidth = 1e9};
  const auto communicate = [&](size_t codec) {
    const MlsysCodec& each = mlsys_codecs()[codec];
    return mlsys_compressed(cluster, each, model, 1) - 1 - each.encdec * 30050 / 25557032;
  };
  EXPECT_NEAR(communicate(0), 2 * 4 * (4 * 400 + 50) * 4 / 5.0 / 1e9, 1e-15);  // PowerSGD, rank 4
  EXPECT_NEAR(communicate(3), 30050 / 8.0 * 4 / 1e9, 1e-15);                   // SignSGD
  EXPECT_NEAR(communicate(4), 0.2 * 30050 * 8 * 4 / 1e9, 1e-15);               // Top-k 20 %
}

// The published numbers that the model meets. It misses the others: `gradlane plan --paper` prints them.
TEST(Mlsys, MeetsPublishedSyncTime) {
  const MlsysNumber sync = mlsys_published().front();
  EXPECT_STREQ(sync.what, "sync-SGD, ResNet-101, 96 workers");
  EXPECT_EQ(sync.published, 265);
  EXPECT_LE(sync.error(), kMlsysTolerance);
}

// Returns the share of the set-ups that gain by more than the tolerance.
double share_of_gains(double gbps, bool (*counts)(const MlsysSetup&)) {
  double gain = 0;
  double all = 0;
  for (const MlsysSetup& each : mlsys_grid(gbps * 1e9 / 8)) {
    if (!counts(each)) continue;
    ++all;
    gain += each.verdict() == MlsysVerdict::kGains ? 1 : 0;
  }
  return gain / all;
}

// In the paper, 6 of more than 200 set-ups gain in data centres, with links of 10 Gb/s. So few do here with the
// published constants, and with ResNet-101 and the same batch. This does not hold for smaller batches.
TEST(Mlsys, FewGainInDataCentres) {
  EXPECT_EQ(mlsys_grid(1.25e9).size(), 198U);
  const auto published = [](const MlsysSetup& each) { return each.published; };
  const auto large = [](const MlsysSetup& each) { return each.batch == 64; };
  EXPECT_LE(share_of_gains(10, published), 6 / 200.0);
  EXPECT_LE(share_of_gains(10, large), 6 / 200.0);
  EXPECT_GT(share_of_gains(1, published), 0.5);
}

}  // namespace
}  // namespace gradlane::test::mlsys_test
