// pack_halves_test.cc - codec pack for bf16 and fp16: all 2^16 elements come back, sums have the bits of uncompressed
// ones, and blocks are cut at granules
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tests/compress/isa_test.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test::pack_halves_test {
namespace {

constexpr size_t kElements = 1 << 16;
using Halves = std::vector<uint16_t>;

// The steps from one element to the next; all are odd, so each order has all elements. Neighbours have the same
// exponent, exponents that differ by 0 to 7, or any exponents.
constexpr std::array<size_t, 5> kSteps = {1, 0x81, 0x401, 0x8003, 0x9e35};

Halves all_elements(size_t step, size_t first = 0) {
  Halves elements(kElements);
  for (size_t i = 0; i < kElements; ++i) elements[i] = static_cast<uint16_t>(first + i * step);
  return elements;
}

const float* as_floats(const Halves& elements) { return reinterpret_cast<const float*>(elements.data()); }
float* as_floats(Halves& elements) { return reinterpret_cast<float*>(elements.data()); }

std::vector<uint8_t> encode(const Codec& codec, const Halves& in) {
  std::vector<uint8_t> block(codec.max_bytes(in.size()));
  const EncodeResult result = codec.encode({as_floats(in), in.size()}, block);
  EXPECT_EQ(result.floats, in.size());
  block.resize(result.bytes);
  return block;
}

Halves decode(const Codec& codec, std::span<const uint8_t> block, size_t count) {
  Halves out(count);
  EXPECT_EQ(codec.decode(block, {as_floats(out), count}), Status::kOk);
  return out;
}

// Returns the sums that ranks compute without a codec.
Halves sums_of(FloatForm form, const Halves& a, const Halves& b) {
  const Codec codec = codec_of(form, Isa::kScalar);
  const auto bytes_of = [](const Halves& x) {
    return std::span(reinterpret_cast<const uint8_t*>(x.data()), 2 * x.size());
  };
  std::vector<float> local(b.size());
  EXPECT_EQ(codec.decode(bytes_of(b), local), Status::kOk);
  Halves sums(a.size());
  EXPECT_EQ(codec.hop(bytes_of(a), local, {reinterpret_cast<uint8_t*>(sums.data()), 2 * sums.size()}).floats, a.size());
  return sums;
}

class PackHalves : public IsaTest {
 protected:
  static std::vector<Codec> codecs(Isa isa) {
    const Codec pack = find_codec("pack", isa);
    return {pack.of(FloatForm::kBf16), pack.of(FloatForm::kFp16)};
  }
};

TEST_P(PackHalves, AllElementsComeBack) {
  for (const Codec& codec : codecs(GetParam())) {
    const Codec scalar = find_codec("pack", Isa::kScalar).of(codec.row().elements);
    for (const size_t step : kSteps) {
      const Halves in = all_elements(step);
      const std::vector<uint8_t> block = encode(codec, in);
      EXPECT_EQ(block, encode(scalar, in)) << step;
      EXPECT_EQ(codec.validate(block, in.size()), Status::kOk);
      EXPECT_EQ(decode(codec, block, in.size()), in) << step;
    }
  }
}

TEST_P(PackHalves, SumsAreThoseWithoutACodec) {
  for (const Codec& codec : codecs(GetParam())) {
    for (const size_t step : kSteps) {
      for (const size_t other : {size_t{1}, step, kElements - step}) {
        const Halves theirs = all_elements(step);
        const Halves ours = all_elements(other, other == step ? 0x8000 : 0x1234);
        const Halves want = sums_of(codec.row().elements, theirs, ours);
        const std::vector<uint8_t> block = encode(codec, theirs);
        std::vector<uint8_t> sum(codec.max_bytes(kElements));
        const HopResult result = codec.hop(block, {as_floats(ours), kElements}, sum);
        ASSERT_EQ(result.status, Status::kOk);
        ASSERT_EQ(result.floats, kElements);
        EXPECT_EQ(decode(codec, {sum.data(), result.bytes}, kElements), want) << step << " " << other;
        Halves accumulator = ours;
        ASSERT_EQ(codec.decode_add(block, {as_floats(accumulator), kElements}), Status::kOk);
        EXPECT_EQ(accumulator, want) << step << " " << other;
      }
    }
  }
}

// A block is cut where granules end, at the last one that fits.
TEST_P(PackHalves, BlocksAreCutAtGranules) {
  for (const Codec& codec : codecs(GetParam())) {
    const size_t granule = codec.granule();
    EXPECT_EQ(granule * 2, 128U);
    const Halves in = [] {
      Halves some = all_elements(0x81);
      some.resize(1000);
      return some;
    }();
    std::vector<size_t> ends = {0};
    for (size_t count = granule; count < in.size(); count += granule) {
      ends.push_back(encode(codec, {in.begin(), in.begin() + static_cast<ptrdiff_t>(count)}).size());
    }
    const size_t whole = encode(codec, in).size();
    for (size_t room = 0; room <= whole; ++room) {
      std::vector<uint8_t> out(room);
      const EncodeResult result = codec.encode({as_floats(in), in.size()}, out);
      const auto fit = static_cast<size_t>(std::ranges::upper_bound(ends, room) - ends.begin()) - 1;
      ASSERT_EQ(result.floats, room == whole ? in.size() : fit * granule) << room;
      ASSERT_EQ(result.bytes, room == whole ? whole : ends[fit]) << room;
    }
  }
}

// No block is longer than one of plain groups.
TEST_P(PackHalves, BlocksAreNeverLongerThanPlainGroups) {
  for (const Codec& codec : codecs(GetParam())) {
    for (const size_t step : kSteps) {
      EXPECT_LE(encode(codec, all_elements(step)).size(), kElements * 2 + kElements / kGroupFloats);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, PackHalves, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::pack_halves_test
