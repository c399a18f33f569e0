// clip_test.cc - gradients whose squares overflow a float, clipped by their norm
#include <cmath>
#include <limits>

#include "tests/compress/isa_test.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test::clip_test {
namespace {

class Clip : public IsaTest {};

TEST_P(Clip, LargeGradientsKeepTheirDirection) {
  constexpr size_t kFloats = 300, kInfinite = 7;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> in(kFloats, 1e25F);
  in[kInfinite] = kInf;
  const Codec clipped = ready_for(codec("dgc:100%,m=0,clip=0.5"), in);
  const std::vector<float> sent = decode_all(clipped, encode_all(clipped, in), kFloats);
  for (size_t i = 0; i < kFloats; ++i) {
    if (i == kInfinite) {
      EXPECT_EQ(sent[i], kInf);
    } else {
      EXPECT_NEAR(static_cast<double>(sent[i]), 0.5 / std::sqrt(kFloats - 1.0), 1e-6) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Clip, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::clip_test
