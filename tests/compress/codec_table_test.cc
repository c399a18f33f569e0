// codec_table_test.cc - the rows of the table of codecs, compared with what the kernels do
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/compress/isa_test.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test::codec_table_test {
namespace {

class Table : public IsaTest {};

std::vector<uint8_t> joined(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  std::vector<uint8_t> both = a;
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

TEST_P(Table, Lengths) {
  Rng rng(1);
  for (const std::string& name : all_codecs()) {
    const Codec mine = codec(name);
    const FloatSource source(mine);
    size_t shortest = mine.max_bytes(256);
    for (const Kind kind : kKinds) {
      for (const size_t floats : {size_t{0}, size_t{1}, size_t{31}, size_t{32}, size_t{33}, size_t{256}}) {
        const size_t bytes = encode_all(mine, source.make(rng, kind, floats)).size();
        EXPECT_LE(bytes, mine.max_bytes(floats)) << name;
        EXPECT_GE(bytes, mine.least_bytes(floats)) << name;
        if (mine.row().width != 0) {
          EXPECT_EQ(bytes, floats * mine.row().width) << name;
        }
      }
    }
    shortest = std::min(shortest, encode_all(mine, std::vector<float>(256)).size());
    EXPECT_EQ(shortest, mine.least_bytes(256)) << name;
  }
}

// Blocks of zeros are the shortest.
TEST_P(Table, NoMoreFitsThanLeastBytesSay) {
  for (const std::string& name : all_codecs()) {
    const Codec mine = codec(name);
    const size_t granule = std::max(mine.granule(), kGroupFloats);
    const std::vector<float> zeros(20 * granule);
    for (const size_t floats : {2 * granule, 10 * granule}) {
      std::vector<uint8_t> out(mine.least_bytes(floats));
      EXPECT_EQ(mine.encode(zeros, out).floats, floats) << name;
    }
  }
}

TEST_P(Table, CutsAreGranules) {
  Rng rng(2);
  for (const std::string& name : all_codecs()) {
    const Codec mine = codec(name);
    const std::vector<float> in = FloatSource(mine).make(rng, Kind::kMixed, 200);
    for (size_t room = 0; room <= mine.max_bytes(200); room += 7) {
      std::vector<uint8_t> out(room);
      const size_t floats = mine.encode(in, out).floats;
      EXPECT_TRUE(floats == in.size() || floats % mine.granule() == 0) << name;
    }
  }
}

TEST_P(Table, WithoutJoinNeighboursAreOneBlock) {
  Rng rng(3);
  for (const std::string& name : all_codecs()) {
    const Codec mine = codec(name);
    if (mine.row().join != nullptr) continue;
    const size_t granule = std::max(mine.granule(), kGroupFloats);
    const std::vector<float> in = FloatSource(mine).make(rng, Kind::kMixed, granule + 45);
    const std::vector<uint8_t> first = encode_all(mine, std::span(in).first(granule));
    EXPECT_EQ(encode_all(mine, in), joined(first, encode_all(mine, std::span(in).subspan(granule)))) << name;
  }
}

// Returns the greatest magnitude of the floats that share a scale with float i; Inf if one of them is not finite.
double largest_of_chunk(const std::vector<float>& in, size_t i, size_t chunk) {
  double largest = 0;
  for (size_t k = i / chunk * chunk; k < std::min(in.size(), (i / chunk + 1) * chunk); ++k) {
    if (!std::isfinite(in[k])) return HUGE_VAL;
    largest = std::max(largest, std::fabs(static_cast<double>(in[k])));
  }
  return largest;
}

TEST_P(Table, Errors) {
  Rng rng(4);
  for (const std::string& name : all_codecs()) {
    const Codec mine = codec(name);
    const FloatSource source(mine);
    const CodecError error = mine.error();
    EXPECT_EQ(mine.row().exact(), error.bounded && error.relative == 0 && error.absolute == 0) << name;
    for (const Kind kind : kKinds) {
      const std::vector<float> in = source.make(rng, kind, 640);
      const std::vector<float> out = decode_all(mine, encode_all(mine, in), in.size());
      if (mine.row().exact()) {
        EXPECT_EQ(bits_of(out), bits_of(in)) << name;
      }
      for (size_t i = 0; i < in.size(); ++i) {
        const double largest = error.of_largest == 0 ? 0 : largest_of_chunk(in, i, mine.granule());
        if (!std::isfinite(in[i]) || std::isinf(out[i]) || std::isinf(largest) || !error.bounded) continue;
        const double f = static_cast<double>(in[i]);
        ASSERT_LE(std::fabs(static_cast<double>(out[i]) - f),
                  error.relative * std::fabs(f) + error.absolute + error.of_largest * largest)
            << name << ", " << in[i];
      }
    }
  }
}

TEST_P(Table, Feedback) {
  const std::vector<float> in(64, 0x1.234568p-3F);
  for (const std::string& name : all_codecs()) {
    const Codec mine = codec(name);
    if (!mine.has_feedback()) continue;
    std::vector<float> residual(in.size());
    std::vector<uint8_t> out(mine.max_bytes(in.size()));
    const EncodeResult result = mine.encode_feedback(in, residual.data(), out);
    ASSERT_EQ(result.floats, in.size());
    const std::vector<float> sent = decode_all(mine, std::span(out).first(result.bytes), in.size());
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(residual[i], in[i] - sent[i]) << name;
  }
}

// Sums of three ranks are the same in every order.
TEST_P(Table, ExactSums) {
  Rng rng(5);
  for (const std::string& name : all_codecs()) {
    const Codec mine = codec(name);
    if (!mine.exact_sums()) continue;
    const int bits = static_cast<int>(mine.row().takes_lattice ? mine.arguments().value_bits : mine.bits());
    std::vector<std::vector<float>> ranks(3);
    for (std::vector<float>& rank : ranks) {
      for (int i = 0; i < 100; ++i) {
        rank.push_back(static_cast<float>(std::ldexp(rng.below(20000), -bits - 2)));
      }
    }
    std::vector<std::vector<uint8_t>> sums;
    std::vector<size_t> order = {0, 1, 2};
    do {
      std::vector<uint8_t> sum = encode_all(mine, ranks[order[0]]);
      for (const size_t next : {order[1], order[2]}) {
        std::vector<uint8_t> out(mine.max_bytes(100));
        const HopResult hop = mine.hop(sum, ranks[next], out);
        ASSERT_EQ(hop.floats, 100U);
        out.resize(hop.bytes);
        sum = out;
      }
      sums.push_back(sum);
    } while (std::ranges::next_permutation(order).found);
    for (const std::vector<uint8_t>& sum : sums) EXPECT_EQ(sum, sums[0]) << name;
  }
}

TEST_P(Table, FormsAreArrays) {
  for (const CodecRow& row : codec_table()) {
    if (row.form == FloatForm::kNone) continue;
    const Codec mine = codec_of(row.form, GetParam());
    EXPECT_EQ(mine.id(), row.id);
    EXPECT_EQ(mine.isa(), GetParam());
    EXPECT_EQ(row.width, row.form == FloatForm::kFp32 ? 4U : 2U);
  }
  EXPECT_TRUE(codec_of(FloatForm::kFp32, GetParam()).row().exact());
}

TEST_P(Table, NamesAndParameters) {
  for (const CodecRow& row : codec_table()) {
    EXPECT_EQ(codec(row.example).name(), row.example);
    EXPECT_EQ(codec(row.example).id(), row.id);
    EXPECT_EQ(std::string(row.usage).find(row.word), 0U);
    EXPECT_LE(row.min_bits, row.max_bits);
    EXPECT_EQ(row.max_bits != 0, row.min_bits != 0);
    if (row.has_rate || row.second_extra.place != nullptr) continue;  // names_test.cc tests these
    const auto found = [&](unsigned bits) {
      CodecArguments arguments = codec(row.example).arguments();
      arguments.bits = static_cast<uint8_t>(bits);
      return find_codec(row.id, arguments, GetParam());
    };
    for (unsigned bits = 0; bits < kOptionBit; ++bits) {
      EXPECT_EQ(found(bits).has_value(), row.min_bits <= bits && bits <= row.max_bits) << row.word << ", " << bits;
      EXPECT_EQ(found(bits | kOptionBit).has_value(), row.option != nullptr && found(bits).has_value());
    }
    if (!row.adaptive) continue;
    const Codec mine = codec(row.example);
    EXPECT_EQ(mine.error().absolute, std::ldexp(1.0, -static_cast<int>(mine.bits()))) << "AdaptiveBound goes by 2^-B";
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Table, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::codec_table_test
