// quality_test.cc - vNMSE and ratio of generated and of recorded gradients, compared with values computed by hand
#include "tools/bench/quality.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/compress/test_floats.h"
#include "tools/bench/npy.h"
#include "tools/bench/samples.h"

namespace gradlane::test::quality_test {
namespace {

using Floats = std::vector<float>;

Codec codec_of_name(const char* name) { return find_codec(name, Isa::kScalar); }

std::string recording(const char* name) {
  const char* const folder = std::getenv("GRADLANE_RECORDINGS");
  if (folder == nullptr) throw std::runtime_error("GRADLANE_RECORDINGS is not set: it names tools/bench/recordings");
  return std::string(folder) + "/" + name + ".npy";
}

// fixed:1 has steps of 1: 0.75 becomes 1, 0.25 becomes 0.
TEST(Quality, IsWhatItIsByHand) {
  const Floats one = {0.75F, 0.25F, 2, 0};
  const Floats other = {0.75F, 0.25F, -2, 1};
  const Quality ring = ring_quality(codec_of_name("fixed:1"), {one, other}, 32);
  // The means are 0.75, 0.25, 0, 0.5; their estimates 1, 0, 0, 0.5.
  EXPECT_DOUBLE_EQ(ring.error, 0.125);
  EXPECT_DOUBLE_EQ(ring.norm, 0.875);
  EXPECT_DOUBLE_EQ(ring.vnmse(), 1.0 / 7);
  EXPECT_EQ(ring.fp32_bytes, 16U);

  const Quality single = single_quality(codec_of_name("fixed:1"), {one, other}, 32);
  EXPECT_DOUBLE_EQ(single.error, 0.25);
  EXPECT_DOUBLE_EQ(single.norm, 10.25);
  EXPECT_EQ(single.fp32_bytes, 32U);
}

TEST(Quality, ExactIsZeroAndNothingIsOne) {
  const Floats small(100, 1e-3F);
  const Floats zeros(100, 0);
  EXPECT_EQ(ring_quality(codec_of_name("raw"), {small, zeros}, 32).vnmse(), 0);
  EXPECT_EQ(ring_quality(codec_of_name("fixed:10"), {zeros, zeros}, 32).vnmse(), 0);  // 0, and not 0 / 0
  EXPECT_DOUBLE_EQ(ring_quality(codec_of_name("fixed:5"), {small, small}, 32).vnmse(), 1);
  const Floats nans(100, NAN);
  EXPECT_TRUE(std::isnan(ring_quality(codec_of_name("raw"), {nans}, 32).vnmse()));
  const Floats plus(100, 1.001F);  // becomes 1 in bf16
  const Floats minus(100, -1.001F);
  EXPECT_TRUE(std::isinf(ring_quality(codec_of_name("bf16"), {plus, minus}, 32).vnmse()));
}

// Blocks of any length, of which the last one is shorter, give the same result as one block.
TEST(Quality, DoesNotDependOnBlocks) {
  Rng rng(31);
  std::vector<Floats> rows(4, Floats(1000));
  Contributions ranks;
  for (Floats& row : rows) {
    for (float& f : row) f = static_cast<float>(rng.bits()) * 0x1p-40F;
    ranks.emplace_back(row);
  }
  for (const char* name : {"raw", "bf16", "inceptionn:10", "fixed:10"}) {
    const Quality whole = ring_quality(codec_of_name(name), ranks, 1 << 20);
    for (const size_t block : {64U, 384U, 1000U}) {
      const Quality cut = ring_quality(codec_of_name(name), ranks, block);
      EXPECT_DOUBLE_EQ(cut.error, whole.error) << name;
      EXPECT_EQ(cut.encoded_bytes, whole.encoded_bytes) << name;
    }
  }
}

TEST(Quality, OfRecordedGradients) {
  for (const char* name : {"digits-late", "conv-early"}) {
    const std::vector<Samples> sets = make_samples({recording(name)});
    ASSERT_EQ(sets.size(), 2U);
    EXPECT_EQ(sets[0].name(), name);
    EXPECT_EQ(sets[0].ranks(), 1U);
    EXPECT_EQ(sets[1].name(), std::string(name) + " x4");
    EXPECT_EQ(sets[1].ranks(), 4U);
    for (const Samples& set : sets) {
      const auto of = [&set](const char* codec) { return set.quality(codec_of_name(codec), 352); };
      EXPECT_LT(of("raw").vnmse(), 1e-13);
      EXPECT_DOUBLE_EQ(of("raw").ratio(), 1);
      EXPECT_LT(of("bf16").vnmse(), 1e-4);
      EXPECT_DOUBLE_EQ(of("bf16").ratio(), 2);
      EXPECT_LT(of("fixed:14").vnmse(), of("fixed:10").vnmse());
      EXPECT_LT(of("fixed:14").ratio(), of("fixed:10").ratio());
    }
  }
}

TEST(Samples, BlocksOfARecordingAreItsRows) {
  const NpyArray array = load_npy(recording("conv-late"));
  ASSERT_EQ(array.rows, 4U);
  const std::vector<Samples> sets = make_samples({recording("conv-late"), "gauss-1"});
  ASSERT_EQ(sets.size(), 3U);
  Floats arriving(4 * 352);
  Floats local(4 * 352);
  sets[0].fill_arriving(352, arriving);
  sets[0].fill_local(352, local);
  EXPECT_EQ(arriving[7], array.row(0)[7]);
  EXPECT_EQ(local[7], array.row(1)[7]);
  EXPECT_EQ(arriving[352 + 7], array.row(1)[array.columns / 4 + 7]);
  sets[1].fill_arriving(352, arriving);
  EXPECT_EQ(arriving[7], array.row(0)[7] + array.row(1)[7] + array.row(2)[7] + array.row(3)[7]);
  Floats longer(2 * array.columns);  // longer than the recording, which wraps around
  sets[0].fill_arriving(longer.size(), longer);
  EXPECT_EQ(longer[array.columns + 7], array.row(0)[7]);
  EXPECT_EQ(sets[2].ranks(), 4U);
  EXPECT_THROW((void)make_samples({"gauss-1", "gauss-1"}), SetupError);
  EXPECT_THROW((void)make_samples({"gauss-2"}), SetupError);
}

}  // namespace
}  // namespace gradlane::test::quality_test
