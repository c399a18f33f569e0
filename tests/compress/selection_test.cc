// selection_test.cc - tests of all codecs that select. Sums are exact in any order. All instruction sets and
// retransmits give the same bytes. A hop has the result of decode(), an addition and encode_sum(). States keep what is
// not sent.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/compress/isa_test.h"
#include "tests/compress/selection_cases.h"

namespace gradlane::test::selection_test {
namespace {

class Selection : public IsaTest {};

bool is_votes(const Codec& codec) { return codec.row().layout == Form::kVotes; }

float canonical(float sum) { return std::isnan(sum) ? float_of(0x7fc00000) : sum; }

// Returns the floats that a rank contributes.
Floats contribution(const Codec& codec, const Floats& in, uint64_t position = 0) {
  return decode_all(codec, encode(codec, in, nullptr, position).block, in.size());
}

// Returns a block. Half of the time it is one that encode() never writes.
Block any_block(Rng& rng, const Codec& codec, size_t floats) {
  if (rng.one_in(2)) return encode(codec, some_floats(rng, floats)).block;
  if (is_votes(codec)) return foreign_votes(rng, floats);
  const Codec fixed = find_codec("fixed:10", Isa::kScalar);
  return make_block(rng, fixed, FloatSource(fixed), BlockKind::kForeign, floats);
}

TEST_P(Selection, VariantsGiveTheBytesOfTheScalarOne) {
  Rng rng(1);
  for (const std::string name : kSelecting) {
    for (int repeat = 0; repeat < 150; ++repeat) {
      const size_t count = rng.one_in(3) ? rng.below(40) : rng.below(1300);
      const std::vector<Floats> ranks = {some_floats(rng, count)};
      const Codec scalar = agreed(name, Isa::kScalar, ranks, 0, rng.bits());
      Codec mine = agreed(name, GetParam(), ranks, 0);
      mine.seed(3, 4);
      Codec same = scalar;
      same.seed(3, 4);
      const Block block = any_block(rng, scalar, count);
      const size_t room = rng.one_in(2) ? kAllOfIt : rng.below(mine.max_bytes(count) + 1);
      const uint64_t position = rng.one_in(4) ? 0xfffffff0 + rng.below(20) : rng.below(100000);
      Floats one = some_floats(rng, count), other = one;
      Floats* const mine_kept = mine.has_feedback() && rng.one_in(2) ? &one : nullptr;
      Floats* const same_kept = mine_kept == nullptr ? nullptr : &other;
      ASSERT_EQ(encode(mine, ranks[0], mine_kept, position, room), encode(same, ranks[0], same_kept, position, room))
          << name << " of " << count << ", room " << room;
      ASSERT_EQ(bits_of(one), bits_of(other)) << name;
      const size_t first = rng.below(count / mine.granule() + 1) * mine.granule();
      ASSERT_EQ(hop(mine, block, ranks[0], mine_kept, position, first, room),
                hop(same, block, ranks[0], same_kept, position, first, room))
          << name << " of " << count << ", room " << room;
      ASSERT_EQ(bits_of(one), bits_of(other)) << name;
      ASSERT_EQ(encode_sum(mine, ranks[0], room), encode_sum(same, ranks[0], room)) << name;
      ASSERT_EQ(bits_of(decode_all(mine, block, count)), bits_of(decode_all(same, block, count))) << name;
      Floats sum = ranks[0], same_sum = ranks[0];
      ASSERT_EQ(mine.decode_add(block, sum), Status::kOk);
      ASSERT_EQ(same.decode_add(block, same_sum), Status::kOk);
      ASSERT_EQ(bits_of(sum), bits_of(same_sum)) << name;
      mine.finish(sum, position);
      same.finish(same_sum, position);
      ASSERT_EQ(bits_of(sum), bits_of(same_sum)) << name;
    }
  }
}

// Just below powers of two, all bits of a float are set but few, as in a small negative integer.
TEST_P(Selection, VariantsAgreeBelowPowersOfTwo) {
  for (const std::string name : kSelecting) {
    for (int exponent = -31; exponent <= 31; ++exponent) {
      Floats in(512);
      for (size_t i = 0; i < in.size(); ++i) {
        const float below = std::ldexp(1 - static_cast<float>(i / 2 + 1) * 0x1p-24F, exponent);
        in[i] = i % 2 == 0 ? -below : below;
      }
      const std::vector<Floats> ranks = {in};
      const Codec mine = agreed(name, GetParam(), ranks, 0), scalar = agreed(name, Isa::kScalar, ranks, 0);
      const Block block = encode(scalar, in).block;
      ASSERT_EQ(encode(mine, in).block, block) << name << ", exponent " << exponent;
      ASSERT_EQ(hop(mine, block, in), hop(scalar, block, in)) << name << ", exponent " << exponent;
    }
  }
}

TEST_P(Selection, HopIsDecodeAddRepresent) {
  Rng rng(2);
  for (const std::string name : kSelecting) {
    for (int repeat = 0; repeat < 100; ++repeat) {
      const size_t count = 1 + rng.below(600);
      const std::vector<Floats> ranks = {some_floats(rng, count)};
      const Codec mine = agreed(name, GetParam(), ranks, 0);
      const Block block = any_block(rng, mine, count);
      Floats sum = contribution(mine, ranks[0], 5);
      ASSERT_EQ(mine.decode_add(block, sum), Status::kOk);
      const Written hopped = hop(mine, block, ranks[0], nullptr, 5);
      ASSERT_EQ(hopped.status, Status::kOk);
      ASSERT_EQ(hopped.block, encode_sum(mine, sum).block) << name << " of " << count;
    }
  }
}

// encode_sum() encodes values that decode() gave without loss, so that other ranks get the same values.
TEST_P(Selection, RepresentingWhatWasDecodedChangesNothing) {
  Rng rng(3);
  for (const std::string name : kSelecting) {
    for (int repeat = 0; repeat < 100; ++repeat) {
      const size_t count = 1 + rng.below(600);
      const std::vector<Floats> ranks = {some_floats(rng, count)};
      const Codec mine = agreed(name, GetParam(), ranks, 0);
      const Written own = encode(mine, ranks[0]);
      ASSERT_EQ(encode_sum(mine, decode_all(mine, own.block, count)), own) << name;
      Floats sum = decode_all(mine, any_block(rng, mine, count), count);
      const Block again = encode_sum(mine, sum).block;
      ASSERT_LE(again.size(), mine.max_bytes(count));
      ASSERT_GE(again.size(), mine.least_bytes(count));
      const Floats decoded = decode_all(mine, again, count);
      ASSERT_EQ(encode_sum(mine, decoded).block, again) << name;
      for (size_t i = 0; i < count && is_votes(mine); ++i) {
        ASSERT_TRUE(decoded[i] == sum[i] || (std::isnan(sum[i]) && std::isnan(decoded[i]))) << name;
      }
      mine.finish(sum, 9);
      Floats finished = sum;
      mine.finish(finished, 9);
      ASSERT_EQ(bits_of(finished), bits_of(sum)) << name;
      ASSERT_EQ(decode_all(mine, encode_sum(mine.for_results(), sum).block, count).size(), count);
    }
  }
}

// Sums of ranks have the same bytes in every order, by hops or by adding floats.
TEST_P(Selection, SumsAreTheSameInAnyOrder) {
  Rng rng(4);
  constexpr size_t kRanks = 5, kCount = 700;
  for (const std::string name : kSelecting) {
    if (name == "fixed:rel=23") continue;  // fp32 does not represent all of 5 * 2^23 steps
    const bool special = name != "fixed:30,stochastic" && name != "tbq:30";
    std::vector<Floats> ranks;
    for (size_t r = 0; r < kRanks; ++r) ranks.push_back(some_floats(rng, kCount, special));
    if (!special) {  // otherwise sums would leave their range
      for (Floats& rank : ranks) {
        for (float& f : rank) f = std::ldexp(std::fmod(f, 1.0F), -11);
      }
    }
    std::vector<Codec> codecs;
    for (size_t r = 0; r < kRanks; ++r) codecs.push_back(agreed(name, GetParam(), ranks, r));
    std::vector<size_t> order(kRanks);
    std::iota(order.begin(), order.end(), size_t{0});
    Block want;
    do {
      Block sum = encode(codecs[order[0]], ranks[order[0]]).block;
      for (size_t k = 1; k < kRanks; ++k) sum = hop(codecs[order[k]], sum, ranks[order[k]]).block;
      Floats floats(kCount);
      for (const size_t r : order) {
        const Floats one = contribution(codecs[r], ranks[r]);
        for (size_t i = 0; i < kCount; ++i) floats[i] = canonical(floats[i] + one[i]);
      }
      if (want.empty()) want = sum;
      ASSERT_EQ(sum, want) << name;
      ASSERT_EQ(encode_sum(codecs[0], floats).block, want) << name;
    } while (std::ranges::next_permutation(order).found);
  }
}

// Random numbers depend only on the seed and the position: a retransmit in packets of other sizes has the same bits.
TEST_P(Selection, ChanceIsAFunctionOfRankAndPlace) {
  Rng rng(5);
  for (const std::string name : kSelecting) {
    const std::vector<Floats> ranks = {some_floats(rng, 3000), some_floats(rng, 3000)};
    const Codec mine = agreed(name, GetParam(), ranks, 0);
    const Floats whole = contribution(mine, ranks[0], 1000);
    for (int repeat = 0; repeat < 5; ++repeat) {
      Floats parts;
      while (parts.size() < 3000) {
        const Floats rest(ranks[0].begin() + static_cast<ptrdiff_t>(parts.size()), ranks[0].end());
        const size_t room = mine.max_bytes(mine.granule()) + rng.below(300);
        const Written part = encode(mine, rest, nullptr, 1000 + parts.size(), room);
        ASSERT_GT(part.floats, 0U);
        const Floats floats = decode_all(mine, part.block, part.floats);
        parts.insert(parts.end(), floats.begin(), floats.end());
      }
      ASSERT_EQ(bits_of(parts), bits_of(whole)) << name;
    }
  }
}

TEST_P(Selection, RanksHaveTheirOwnChance) {
  Floats in(3000);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 7) * 0x1.23p-8F;
  const std::vector<Floats> ranks = {in, in};
  for (const std::string name : {"fixed:6,stochastic", "terngrad", "signsgd", "signsgd,ef"}) {
    const Codec mine = agreed(name, GetParam(), ranks, 0), other = agreed(name, GetParam(), ranks, 1);
    EXPECT_EQ(encode(mine, in), encode(mine, in)) << name;
    EXPECT_NE(encode(mine, in), encode(other, in)) << name;
    EXPECT_NE(encode(mine, in), encode(mine, in, nullptr, 1)) << name;
    EXPECT_NE(encode(mine, in), encode(agreed(name, GetParam(), ranks, 0, 8), in)) << name;
  }
}

// Values that are not sent stay in the residual exactly. Residuals of floats that did not fit do not change.
TEST_P(Selection, StatesKeepWhatIsNotSent) {
  Rng rng(6);
  for (const std::string name : kSelecting) {
    if (!find_codec(name, GetParam()).has_feedback()) continue;
    for (int repeat = 0; repeat < 60; ++repeat) {
      const size_t count = 1 + rng.below(900);
      const std::vector<Floats> ranks = {some_floats(rng, count)};
      const Codec mine = agreed(name, GetParam(), ranks, 0);
      const Floats before = some_floats(rng, count, false);
      Floats after = before, x(count);
      const size_t room = rng.one_in(2) ? kAllOfIt : rng.below(mine.max_bytes(count));
      const Block block = any_block(rng, mine, count);
      const bool hops = rng.one_in(2);
      const Written written =
          hops ? hop(mine, block, ranks[0], &after, 0, 0, room) : encode(mine, ranks[0], &after, 0, room);
      for (size_t i = 0; i < count; ++i) x[i] = canonical(ranks[0][i] + before[i]);
      const Floats sent = contribution(mine, x);
      for (size_t i = 0; i < count; ++i) {
        const float left = std::isfinite(x[i]) ? x[i] - sent[i] : 0.0F;
        ASSERT_EQ(after[i], i < written.floats ? left : before[i]) << name << ", float " << i << " of " << count;
      }
    }
  }
}

// The mean of 1000 results is the float, up to a thousandth of the final residual.
TEST_P(Selection, FeedbackBringsEverythingInTheEnd) {
  Rng rng(7);
  constexpr size_t kCount = 512, kTimes = 1000;
  for (const std::string name : {"fixed:rel=2", "tbq:7", "signsgd,ef"}) {
    std::vector<Floats> ranks = {Floats(kCount)};
    for (float& f : ranks[0]) f = 0x1p-8F * (static_cast<float>(rng.bits()) * 0x1p-31F - 1);  // below 2^-7
    Floats residual(kCount);
    std::vector<double> sum(kCount);
    for (size_t t = 0; t < kTimes; ++t) {
      const Codec mine = agreed(name, GetParam(), ranks, 0, t, residual.data());
      const Floats sent = decode_all(mine, encode(mine, ranks[0], &residual).block, kCount);
      for (size_t i = 0; i < kCount; ++i) sum[i] += static_cast<double>(sent[i]);
    }
    for (size_t i = 0; i < kCount; ++i) {
      const double wanted = static_cast<double>(ranks[0][i]);
      EXPECT_LT(std::fabs(sum[i] / kTimes - wanted), 0x1p-13) << name << ", " << wanted;
    }
  }
}

// ---- Blocks that are damaged

TEST_P(Selection, ValidateKnowsEveryBadBlock) {
  Rng rng(8);
  size_t refused = 0;
  for (const std::string name : kSelecting) {
    const Codec mine = codec(name);
    for (int repeat = 0; repeat < 300; ++repeat) {
      const size_t count = 1 + rng.below(600);
      const Floats local = some_floats(rng, count);
      Block block = any_block(rng, mine, count);
      if (rng.one_in(2)) block.resize(rng.below(block.size() + 40));
      if (!block.empty() && rng.one_in(2)) block[rng.below(block.size())] ^= static_cast<uint8_t>(1U << rng.below(8));
      block.shrink_to_fit();
      Floats out(count), sum(count);
      const Status status = mine.validate(block, count);
      refused += status == Status::kOk ? 0 : 1;
      ASSERT_EQ(mine.decode(block, out), status) << name;
      ASSERT_EQ(mine.decode_add(block, sum), status) << name;
      const Written hopped = hop(mine, block, local);
      ASSERT_EQ(hopped.status, status) << name;
      ASSERT_EQ(hopped.floats, status == Status::kOk ? count : 0U) << name;
    }
  }
  EXPECT_GT(refused, 500U);
}

// ---- Specials

TEST_P(Selection, NanAndInfArrive) {
  const float inf = std::numeric_limits<float>::infinity(), nan = float_of(0x7fc00001);
  for (const std::string name : kSelecting) {
    for (const size_t count : {size_t{8}, size_t{300}}) {
      Floats in(count, 0.25F), other(count, -0.25F);
      in[0] = nan, in[1] = inf, in[2] = -inf, in[3] = inf, in[4] = -inf;
      other[3] = -inf, other[4] = -inf, other[5] = nan;
      const std::vector<Floats> ranks = {in, other};
      const Codec mine = agreed(name, GetParam(), ranks, 0), theirs = agreed(name, GetParam(), ranks, 1);
      Floats sum = decode_all(mine, hop(mine, encode(theirs, other).block, in).block, count);
      for (const bool finished : {false, true}) {
        EXPECT_EQ(bits_of(sum[0]), 0x7fc00000U) << name;
        EXPECT_EQ(sum[1], inf) << name;
        EXPECT_EQ(sum[2], -inf) << name;
        EXPECT_EQ(bits_of(sum[3]), 0x7fc00000U) << name;
        EXPECT_EQ(sum[4], -inf) << name;
        EXPECT_EQ(bits_of(sum[5]), 0x7fc00000U) << name;
        EXPECT_TRUE(std::isfinite(sum[6])) << name;
        if (!finished) mine.finish(sum, 0);
      }
    }
  }
}

// All ranks have only Inf or only zeros, so that no value gives a scale.
TEST_P(Selection, NothingToMakeAScaleOf) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::string name : kSelecting) {
    for (const float all : {0.0F, inf}) {
      const std::vector<Floats> ranks = {Floats(333, all), Floats(333, all)};
      const Codec mine = agreed(name, GetParam(), ranks, 0);
      const Floats sum = decode_all(mine, hop(mine, encode(mine, ranks[0]).block, ranks[1]).block, 333);
      for (const float f : sum) {
        if (all == inf) {
          ASSERT_EQ(f, inf) << name;
        } else {
          ASSERT_LE(std::fabs(f), is_votes(mine) ? 2.0F : 0.0F) << name;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Selection, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::selection_test
