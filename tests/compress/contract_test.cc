// contract_test.cc - the promises of codec.h for every codec: error bounds, idempotence, sizes, where runs are cut, and
// what a hop and feedback compute
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/compress/isa_test.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test::contract_test {
namespace {

class Contract : public IsaTest {};

// Returns the result that a codec must give for a sum that the CPU has computed: every NaN becomes 0x7fc00000.
float canonical(float sum) { return std::isnan(sum) ? float_of(0x7fc00000) : sum; }

double magnitude(float f) { return std::fabs(static_cast<double>(f)); }

// Checks v = decode(encode(f)) against the error bound of the codec, which codec.h lists.
testing::AssertionResult within_bound(const Codec& codec, float f, float v) {
  const int b = codec.param() & 0x7f;
  const double size = magnitude(f);
  const double error = magnitude(v) == magnitude(f) ? 0.0 : std::fabs(static_cast<double>(v) - static_cast<double>(f));
  bool good = false;
  uint32_t upper = 0;  // for a NaN: the payload bits that are kept, with the quiet bit
  switch (codec.id()) {
    case CodecId::kBf16:
      upper = (bits_of(f) & 0xffff0000) | 0x400000;
      good = std::isnan(f)        ? bits_of(v) == upper
             : std::isinf(f)      ? bits_of(v) == bits_of(f)
             : size >= 0x1.ffp127 ? std::isinf(v) && std::signbit(v) == std::signbit(f)  // rounds to 2^128
             : size < 0x1p-126    ? std::isfinite(v)
                                  : error <= size * 0x1p-8;
      break;
    case CodecId::kFp16:
      upper = (bits_of(f) & 0xffffe000) | 0x400000;
      good = std::isnan(f)    ? bits_of(v) == upper
             : size >= 65520  ? std::isinf(v) && std::signbit(v) == std::signbit(f)
             : size < 0x1p-14 ? error <= 0x1p-25
                              : error <= size * 0x1p-11;
      break;
    case CodecId::kInceptionn:
      good = size < 1 ? error < std::ldexp(1.0, -b) : bits_of(v) == bits_of(f);
      break;
    case CodecId::kInceptionnLiteral:
      good = size < 1 ? error < std::ldexp(1.0, -std::min(b, 7)) : bits_of(v) == bits_of(f);
      break;
    case CodecId::kFixed:
      good = size < std::ldexp(1.0, 24 - b) ? error <= std::ldexp(1.0, -b) : bits_of(v) == bits_of(f);
      break;
    default:  // the row has the bound
      good = !codec.error().bounded ? true
             : codec.row().exact()  ? bits_of(v) == bits_of(f)
                                    : !std::isfinite(f) || std::isinf(v) ||
                                         error <= size * codec.error().relative + codec.error().absolute;
  }
  if (good) return testing::AssertionSuccess();
  return testing::AssertionFailure() << codec.name() << ": " << f << " (" << std::hex << bits_of(f) << ") became " << v
                                     << " (" << bits_of(v) << ")";
}

TEST_P(Contract, ErrorBounds) {
  Rng rng(1);
  for (const std::string& name : all_codecs()) {
    const Codec mine = codec(name);
    if (mine.error().of_largest != 0) continue;  // see Table.Errors
    const FloatSource source(mine);
    std::vector<float> in = source.edges();
    for (const Kind kind : kKinds) std::ranges::copy(source.make(rng, kind, 400), std::back_inserter(in));
    const std::vector<float> out = decode_all(mine, encode_all(mine, in), in.size());
    for (size_t i = 0; i < in.size(); ++i) ASSERT_TRUE(within_bound(mine, in[i], out[i]));
  }
}

// Half steps reach the error bound. A codec with smaller errors would write other bytes than the wire format says.
TEST_P(Contract, RoundsHalfStepsToEven) {
  const Codec fixed = codec("fixed:10");
  const std::vector<float> in = {0x1p-10F, -0x1p-10F, 0x3p-10F, 0x5p-10F, 253 * 0x1p-10F, 0x1.000002p-10F};
  const std::vector<float> want = {0.0F, 0.0F, 0x4p-10F, 0x4p-10F, 252 * 0x1p-10F, 0x2p-10F};
  EXPECT_EQ(decode_all(fixed, encode_all(fixed, in), in.size()), want);
}

TEST_P(Contract, EncodingIsIdempotent) {
  Rng rng(2);
  for (const std::string& name : all_codecs()) {
    const Codec mine = codec(name);
    if (!mine.row().is_additive) continue;  // results of other codecs are never encoded again
    const FloatSource source(mine);
    for (const Kind kind : kKinds) {
      const std::vector<float> in = kind == Kind::kEdges ? source.edges() : source.make(rng, kind, 333);
      const std::vector<uint8_t> block = encode_all(mine, in);
      ASSERT_TRUE(comes_back(mine, block, in.size())) << name;

      // A block that a hop writes is what encode_sum() makes of its floats, even if the hop read a foreign block.
      const std::vector<uint8_t> other = make_block(rng, mine, source, BlockKind::kForeign, in.size());
      std::vector<uint8_t> sum(mine.max_bytes(in.size()));
      const HopResult hop = mine.hop(other, in, sum);
      ASSERT_EQ(hop.status, Status::kOk);
      sum.resize(hop.bytes);
      ASSERT_TRUE(comes_back(mine, sum, in.size())) << name;
    }
  }
}

TEST_P(Contract, MaxBytesIsReachedAndNeverExceeded) {
  for (const std::string& name : some_codecs()) {
    const Codec mine = codec(name);
    for (size_t floats = 0; floats <= 200; ++floats) {
      std::vector<float> worst(floats, std::numeric_limits<float>::infinity());
      if (mine.row().layout == Form::kPacked) {  // exponents that are far apart
        for (size_t i = 0; i < floats; i += 2) worst[i] = std::numeric_limits<float>::min();
      }
      std::vector<uint8_t> out(mine.max_bytes(floats) + 100);
      const EncodeResult result = mine.encode(worst, out);
      EXPECT_EQ(result.floats, floats);
      EXPECT_EQ(result.bytes, mine.max_bytes(floats));
    }
  }
}

// `inceptionn:10,literal` breaks the bound of `inceptionn:10`, and zeroes three of the five octaves of its 8-bit class.
TEST_P(Contract, LiteralCodeBreaksTheBound) {
  const Codec literal = codec("inceptionn:10,literal");
  const std::vector<float> in = {0x1.fffffep-11F, 0x1p-10F, 0x1.fffffep-8F, 0x1p-7F, 0x1.fffffep-6F, 0x1p-5F};
  const std::vector<float> want = {0.0F, 0.0F, 0.0F, 0x1p-7F, 0x3p-7F, 0x1p-5F};
  const std::vector<uint8_t> block = encode_all(literal, in);
  EXPECT_EQ(decode_all(literal, block, in.size()), want);
  EXPECT_EQ(block.size(), kTagBytes + 4 * 1 + 2) << "zeroes of the 8-bit class take a byte each";

  // These magnitudes of the 8-bit class have evenly spread logarithms.
  constexpr int kOctaves = 5, kSteps = 1000;
  std::vector<float> class_8;
  for (int i = 0; i < kOctaves * kSteps; ++i) class_8.push_back(std::exp2(static_cast<float>(i) / kSteps - 10));
  const auto most_and_zeroes = [&](const char* name) {
    const Codec of = codec(name);
    const std::vector<float> out = decode_all(of, encode_all(of, class_8), class_8.size());
    double most = 0;
    for (size_t i = 0; i < out.size(); ++i) most = std::max(most, magnitude(class_8[i] - out[i]));
    return std::pair(most / 0x1p-10, std::ranges::count(out, 0.0F));
  };
  const auto [most, zeroes] = most_and_zeroes("inceptionn:10,literal");
  EXPECT_GT(most, 7.99);
  EXPECT_LT(most, 8);
  EXPECT_EQ(zeroes, 3 * kSteps);
  const auto [ours, our_zeroes] = most_and_zeroes("inceptionn:10,truncate");
  EXPECT_LT(ours, 0.25);
  EXPECT_EQ(our_zeroes, 0);
}

// If the output is short, encode() takes the longest prefix that fits. Prefixes end at a multiple of the granule, or at
// the end.
TEST_P(Contract, LimitedRoomTakesTheLongestPrefix) {
  Rng rng(3);
  for (const std::string& name : some_codecs()) {
    const Codec mine = codec(name);
    const FloatSource source(mine);
    for (const size_t floats : std::initializer_list<size_t>{1, 31, 32, 33, 64, 100, 160, 171}) {
      const std::vector<float> in = source.make(rng, Kind::kMixed, floats);
      std::vector<std::vector<uint8_t>> prefixes;
      for (size_t n = 0; n < floats; n += mine.granule()) prefixes.push_back(encode_all(mine, {in.data(), n}));
      prefixes.push_back(encode_all(mine, in));
      size_t fits = 0;
      for (size_t room = 0; room <= mine.max_bytes(floats) + 70; ++room) {
        while (fits + 1 < prefixes.size() && prefixes[fits + 1].size() <= room) ++fits;
        std::vector<uint8_t> out(room);
        const EncodeResult result = mine.encode(in, out);
        ASSERT_EQ(result.floats, std::min(floats, fits * mine.granule())) << name << " of " << floats << " in " << room;
        out.resize(result.bytes);
        ASSERT_EQ(out, prefixes[fits]) << name << " of " << floats << " in " << room;
      }
    }
  }
}

TEST_P(Contract, CutBlocksStayBelowMaxPacket) {
  for (const char* name : {"fixed:10", "inceptionn:10"}) {
    const Codec mine = codec(name);
    const std::vector<float> zeros(2'000'000);
    std::vector<uint8_t> out(50000);
    EncodeResult result = mine.encode(zeros, out);
    EXPECT_EQ(mine.least_bytes(result.floats), kMaxPacket);
    EXPECT_EQ(result.bytes, kMaxPacket);

    const std::vector<float> raw(10000, 0x1p30F);
    result = mine.encode(raw, out);  // this output is longer than max_bytes()
    EXPECT_EQ(result.floats, raw.size());
    result = mine.encode(raw, std::span(out).first(mine.max_bytes(raw.size()) - 1));
    EXPECT_EQ(result.bytes, mine.max_bytes(result.floats));
    EXPECT_LE(result.bytes, kMaxPacket);
    EXPECT_GT(mine.max_bytes(result.floats + kGroupFloats), kMaxPacket);
  }
}

// Returns a random length for an output. At least one granule fits, so that each call makes progress.
size_t packet_room(Rng& rng, const Codec& codec) { return codec.max_bytes(codec.granule()) + rng.below(300); }

TEST_P(Contract, PacketsAddUpToTheWhole) {
  Rng rng(4);
  for (const std::string& name : some_codecs()) {
    const Codec mine = codec(name);
    const FloatSource source(mine);
    for (int repeat = 0; repeat < 20; ++repeat) {
      const std::vector<float> in = source.make(rng, Kind::kMixed, 1 + rng.below(700));
      const std::vector<uint8_t> block = make_block(rng, mine, source, BlockKind::kForeign, in.size());
      const std::vector<float> encoded = decode_all(mine, encode_all(mine, in), in.size());
      std::vector<uint8_t> sum(mine.max_bytes(in.size()));
      sum.resize(mine.hop(block, in, sum).bytes);
      const std::vector<float> hopped = decode_all(mine, sum, in.size());

      for (const bool hop : {false, true}) {
        std::vector<float> parts;
        while (parts.size() < in.size()) {
          std::vector<uint8_t> out(packet_room(rng, mine));
          const HopResult result = [&]() -> HopResult {
            if (hop) return mine.hop(block, in, out, parts.size());
            const EncodeResult part = mine.encode(std::span(in).subspan(parts.size()), out);
            return {Status::kOk, part.floats, part.bytes};
          }();
          ASSERT_EQ(result.status, Status::kOk);
          ASSERT_GT(result.floats, 0U);
          ASSERT_TRUE(result.floats % mine.granule() == 0 || parts.size() + result.floats == in.size());
          out.resize(result.bytes);
          std::ranges::copy(decode_all(mine, out, result.floats), std::back_inserter(parts));
        }
        ASSERT_EQ(bits_of(parts), bits_of(hop ? hopped : encoded)) << name;
      }
    }
  }
}

// Returns the nearest multiple of `step`, ties to even. Floats from 2^23 steps on are multiples already, and a NaN does
// not change.
float to_multiple(float f, float step) {
  if (!(std::fabs(f) < 0x1p23F * step)) return f;
  return static_cast<float>(std::nearbyint(static_cast<double>(f) / static_cast<double>(step)) *
                            static_cast<double>(step));
}

// A hop has the result of decode(), an addition and encode_sum(). It rounds the local floats before it adds them:
// `fixed` to its lattice, `inceptionn` to its finest step. `inceptionn` with truncate does not round them.
TEST_P(Contract, HopIsDecodeAddEncode) {
  Rng rng(5);
  for (const std::string& name : some_codecs()) {
    const Codec mine = codec(name);
    const FloatSource source(mine);
    for (int repeat = 0; repeat < 100; ++repeat) {
      const size_t floats = 1 + rng.below(200);
      const std::vector<float> local = source.make(rng, kKinds[rng.below(kKinds.size())], floats);
      const BlockKind kind = rng.one_in(2) ? BlockKind::kForeign : BlockKind::kEncoded;
      const std::vector<uint8_t> block = make_block(rng, mine, source, kind, floats);
      std::vector<float> sum = local;
      if (mine.id() == CodecId::kFixed || mine.row().layout == Form::kSparse)
        sum = decode_all(mine, encode_all(mine, local), floats);
      if (mine.id() == CodecId::kInceptionn && (mine.param() & 0x80) == 0) {
        for (float& f : sum) f = to_multiple(f, 0x1p-15F);
      }
      ASSERT_EQ(mine.decode_add(block, sum), Status::kOk);
      std::vector<uint8_t> out(mine.max_bytes(floats));
      const HopResult hop = mine.hop(block, local, out);
      ASSERT_EQ(hop.status, Status::kOk);
      ASSERT_EQ(hop.floats, floats);
      out.resize(hop.bytes);
      ASSERT_EQ(out, encode_all_sums(mine, sum)) << name;
    }
  }
}

TEST_P(Contract, DecodeAddIsIeeeAdditionWithOneNan) {
  Rng rng(6);
  for (const std::string& name : some_codecs()) {
    const Codec mine = codec(name);
    const FloatSource source(mine);
    for (const Kind kind : kKinds) {
      std::vector<float> sum = source.make(rng, kind, 300);
      const std::vector<uint8_t> block = make_block(rng, mine, source, BlockKind::kForeign, sum.size());
      const std::vector<float> value = decode_all(mine, block, sum.size());
      std::vector<uint32_t> want;
      for (size_t i = 0; i < sum.size(); ++i) {
        want.push_back(bits_of(canonical(sum[i] + value[i])));
        // A sparse block does not touch the sums that it has no value for, so these get their expected bits here.
        if (mine.row().layout == Form::kSparse && value[i] == 0) sum[i] = canonical(sum[i] + value[i]);
      }
      ASSERT_EQ(mine.decode_add(block, sum), Status::kOk);
      ASSERT_EQ(bits_of(sum), want) << name;
    }
  }
}

TEST_P(Contract, FeedbackLeavesTheRoundingError) {
  Rng rng(7);
  for (const char* name : {"fixed:1", "fixed:10", "fixed:30"}) {
    const Codec mine = codec(name);
    ASSERT_TRUE(mine.has_feedback());
    const FloatSource source(mine);
    for (const Kind kind : kKinds) {
      const std::vector<float> in = source.make(rng, kind, 150);
      const std::vector<float> before = source.make(rng, rng.one_in(2) ? kind : Kind::kResidual, in.size());
      std::vector<float> x;
      for (size_t i = 0; i < in.size(); ++i) x.push_back(canonical(in[i] + before[i]));
      const std::vector<float> sent = decode_all(mine, encode_all(mine, x), x.size());
      const std::vector<uint8_t> block = make_block(rng, mine, source, BlockKind::kForeign, in.size());

      for (const bool hop : {false, true}) {
        std::vector<float> residual = before;
        std::vector<uint8_t> out(mine.max_bytes(in.size()));
        std::vector<uint8_t> want(out.size());
        if (hop) {
          out.resize(mine.hop_feedback(block, in, residual.data(), out).bytes);
          want.resize(mine.hop(block, x, want).bytes);
        } else {
          out.resize(mine.encode_feedback(in, residual.data(), out).bytes);
          want = encode_all(mine, x);
        }
        ASSERT_EQ(out, want) << name;
        for (size_t i = 0; i < x.size(); ++i) {
          const float owed = std::isfinite(x[i]) ? x[i] - sent[i] : 0.0F;
          ASSERT_EQ(residual[i], owed) << name << " " << in[i] << " + " << before[i];
        }
      }
    }
  }
}

TEST_P(Contract, FeedbackOfFloatsNotConsumedStays) {
  const Codec mine = codec("fixed:10");
  const std::vector<float> in(100, 0.3F);
  const std::vector<uint8_t> block = encode_all(mine, in);
  const size_t room = encode_all(mine, std::span(in).first(64)).size();
  for (const bool hop : {false, true}) {
    const size_t first = hop ? 32 : 0;
    std::vector<float> residual(100, 0x1p-12F);
    std::vector<uint8_t> out(hop ? room : room + 3);
    const size_t floats = hop ? mine.hop_feedback(block, in, residual.data(), out, first).floats
                              : mine.encode_feedback(in, residual.data(), out).floats;
    ASSERT_GE(floats, 32U);
    ASSERT_LT(first + floats, 100U);
    for (size_t i = 0; i < 100; ++i) {
      const bool used = first <= i && i < first + floats;
      EXPECT_EQ(residual[i] == 0x1p-12F, !used) << i;
    }
  }
}

void expect_status(const Codec& mine, size_t floats, const std::vector<uint8_t>& block, Status want) {
  std::vector<float> in(floats, 0.4F), out(floats);
  std::vector<uint8_t> sum(mine.max_bytes(floats));
  EXPECT_EQ(mine.validate(block, floats), want);
  EXPECT_EQ(mine.decode(block, out), want);
  EXPECT_EQ(mine.decode_add(block, out), want);
  const HopResult hop = mine.hop(block, in, sum);
  EXPECT_EQ(hop.status, want);
  EXPECT_EQ(hop.floats + hop.bytes == 0, want != Status::kOk);
}

// The status names the fault of a bad block.
TEST_P(Contract, BadBlocks) {
  for (const std::string& name : some_codecs()) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, name);
    const Codec mine = codec(name);
    const std::vector<float> in(33, 0.4F);
    const auto expect = [&](const std::vector<uint8_t>& block, Status want) {
      expect_status(mine, in.size(), block, want);
    };
    std::vector<uint8_t> block = encode_all(mine, in);
    expect(block, Status::kOk);
    expect({}, Status::kShort);
    if (mine.row().layout == Form::kLattice || mine.row().layout == Form::kSparse)
      continue;  // the bytes decide which fault is found first: see BadPlanes, sparse_test.cc
    block.push_back(0);
    expect(block, Status::kLong);
    block.pop_back();
    expect({block.begin(), block.end() - 1}, Status::kShort);
    expect({block.begin(), block.begin() + 1}, Status::kShort);
    if (mine.row().layout != Form::kTagged) continue;
    block[8] |= 4;  // tag of float 33
    expect(block, Status::kBadTail);
    block[8] &= 3;
    block[15] |= 0x80;  // tag of the last place of the group
    expect(block, Status::kBadTail);
  }
}

// The status is that of the first rule of docs/codec-format.md that a block breaks.
TEST_P(Contract, BadPlanes) {
  struct Case {
    const char* what;
    size_t floats;
    std::vector<uint8_t> block;
    Status want;
  };
  const Case cases[] = {
      {"zeros", 33, {0}, Status::kOk},
      {"one plane", 33, {1, 9, 9, 9, 9}, Status::kOk},
      {"one plane, cut", 33, {1, 9, 9, 9}, Status::kShort},
      {"one plane, and a byte", 33, {1, 9, 9, 9, 9, 9}, Status::kLong},
      {"half the tags", 65, {0}, Status::kShort},
      {"tag of no group, and cut", 65, {1, 0x10}, Status::kBadTail},
      {"no place for an escape", 33, {0xf0, 0, 0, 0, 0}, Status::kShort},
      {"an escape of nothing", 33, {0xf0, 0, 0, 0, 0, 0}, Status::kOk},
      {"17 planes", 33, {0xf0, 17, 0, 0, 0, 0}, Status::kBadEscape},
      {"16 planes and 17 raw floats", 33, {0x0f, 16, 0xff, 0xff, 1, 0}, Status::kBadEscape},
      {"17 planes, a raw float behind the last", 33, {0xf0, 17, 2, 0, 0, 0}, Status::kBadEscape},
      {"a raw float behind the last", 33, {0xf0, 0, 2, 0, 0, 0}, Status::kBadTail},
      {"a raw float that is cut", 33, {0xf0, 7, 7, 7, 0, 1, 0, 0, 0}, Status::kShort},
      {"a raw float", 33, {0xf0, 7, 7, 7, 7, 0, 1, 0, 0, 0}, Status::kOk},
      {"a raw float, and a byte", 33, {0xf0, 7, 7, 7, 7, 7, 0, 1, 0, 0, 0}, Status::kLong},
      {"two escapes, of which the first is bad", 33, {0xff, 0, 0, 0, 0, 0, 17, 0, 0, 0, 0}, Status::kBadEscape},
      {"two escapes, of which the last has a bad tail", 33, {0xff, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0}, Status::kBadTail},
  };
  for (const char* name : {"fixed:10", "fixed:4"}) {
    for (const Case& each : cases) {
      const testing::ScopedTrace trace(__FILE__, __LINE__, each.what);
      expect_status(codec(name), each.floats, each.block, each.want);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Contract, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::contract_test
