// sparse_test.cc - codecs that send some elements and keep the others: values that are sent, values that stay, the
// rate, and invalid blocks
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <numeric>

#include "tests/compress/isa_test.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test::sparse_test {
namespace {

class Sparse : public IsaTest {};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Returns floats like gradients, with a long tail: a Laplace distribution.
std::vector<float> gradients(Rng& rng, size_t count) {
  std::vector<float> floats(count);
  for (float& f : floats) {
    f = static_cast<float>((rng.one_in(2) ? 0.001 : -0.001) * std::log((rng.bits() + 1.0) * 0x1p-32));
  }
  return floats;
}

// One rank's contribution, with states for a codec that has them.
struct Rank {
  explicit Rank(size_t floats) : residual(floats), second(floats) {}

  // Scans the floats, and encodes them in packets of at most `room` bytes. Returns the decoded floats.
  std::vector<float> send(const Codec& codec, std::span<const float> in, size_t room = 1400, uint64_t seed = 7) {
    float* const more = codec.states() > 1 ? second.data() : nullptr;
    Codec mine = codec;
    mine.seed(1, seed);
    mine = ready_for(mine, in, residual.data(), more);
    std::vector<float> sent;
    packets.clear();
    while (sent.size() < in.size()) {
      std::vector<uint8_t> out(room);
      const size_t at = sent.size();
      const EncodeResult result = mine.encode({.in = in.data() + at,
                                               .residual = residual.data() + at,
                                               .floats = in.size() - at,
                                               .out = out.data(),
                                               .room = out.size(),
                                               .position = at,
                                               .second = more == nullptr ? nullptr : more + at});
      if (result.floats == 0) std::abort();
      out.resize(result.bytes);
      packets.push_back(out);
      std::ranges::copy(decode_all(mine, out, result.floats), std::back_inserter(sent));
    }
    return sent;
  }

  std::vector<float> residual;
  std::vector<float> second;
  std::vector<std::vector<uint8_t>> packets;
};

size_t values_in(std::span<const float> floats) {
  return floats.size() - static_cast<size_t>(std::ranges::count(floats, 0.0F));
}

// Without momentum, each input is sent or kept, for any size of packets.
TEST_P(Sparse, WhatIsNotSentIsKept) {
  for (const char* name : {"topk:1%", "mstopk:1%", "graddrop:0.1%", "topk:25%", "dgc:1%,m=0", "topk:100%"}) {
    Rng rng(1);
    const Codec mine = codec(name);
    for (const size_t floats : {size_t{1}, size_t{31}, size_t{255}, size_t{256}, size_t{257}, size_t{10000}}) {
      Rank rank(floats);
      std::vector<float> before(floats);
      for (int step = 0; step < 5; ++step) {
        const std::vector<float> in = gradients(rng, floats);
        before = rank.residual;
        const std::vector<float> sent = rank.send(mine, in);
        ASSERT_GT(values_in(sent), 0U) << name;
        for (size_t i = 0; i < floats; ++i) {
          const float x = in[i] + before[i];
          ASSERT_TRUE((sent[i] == x && rank.residual[i] == 0) || (sent[i] == 0 && rank.residual[i] == x))
              << name << ", " << floats << " floats, element " << i;
        }
      }
    }
  }
}

// On the lattice, the rounding error is kept, too.
TEST_P(Sparse, RoundingIsKept) {
  Rng rng(2);
  for (const char* name : {"topk:10%+fixed:10", "mstopk:10%+fixed:12", "dgc:5%,m=0+fixed:8", "topk:100%+fixed:1"}) {
    const Codec mine = codec(name);
    const float step = std::ldexp(1.0F, 1 - mine.arguments().value_bits);
    Rank rank(3000);
    for (int round = 0; round < 4; ++round) {
      const std::vector<float> in = gradients(rng, 3000);
      const std::vector<float> before = rank.residual;
      const std::vector<float> sent = rank.send(mine, in);
      for (size_t i = 0; i < in.size(); ++i) {
        ASSERT_EQ(std::remainder(sent[i], step), 0) << name;
        ASSERT_EQ(rank.residual[i], (in[i] + before[i]) - sent[i]) << name;
        if (sent[i] != 0) {
          ASSERT_LE(std::fabs(rank.residual[i]), step / 2) << name;
        }
      }
    }
  }
}

// The states follow u = m u + g, v += u. Both become 0 where v was sent.
TEST_P(Sparse, MomentumIsCorrectedAndMasked) {
  Rng rng(3);
  const Codec mine = codec("dgc:1%,m=0.5");
  Rank rank(5000);
  std::vector<float> u(5000), v(5000);
  size_t all = 0;
  for (int step = 0; step < 6; ++step) {
    const std::vector<float> in = gradients(rng, 5000);
    const std::vector<float> sent = rank.send(mine, in);
    for (size_t i = 0; i < in.size(); ++i) {
      u[i] = u[i] * 0.5F + in[i];
      v[i] += u[i];
      if (sent[i] != 0) {
        ASSERT_EQ(sent[i], v[i]);
        u[i] = v[i] = 0;
        ++all;
      }
    }
    ASSERT_EQ(rank.residual, v);
    ASSERT_EQ(rank.second, u);
  }
  EXPECT_NEAR(static_cast<double>(all), 300, 30);
}

TEST_P(Sparse, GradientsAreClippedByTheirNorm) {
  Rng rng(4);
  std::vector<float> in = gradients(rng, 5000);
  double square = 0;
  for (const float f : in) square += static_cast<double>(f) * static_cast<double>(f);
  for (float& f : in) f *= static_cast<float>(2 / std::sqrt(square));  // norm 2
  for (const auto& [name, norm] :
       {std::pair{"dgc:100%,m=0,clip=0.5", 0.5}, {"dgc:100%,m=0,clip=3", 2.0}, {"dgc:100%,m=0", 2.0}}) {
    Rank rank(in.size());
    double sum = 0;
    for (const float f : rank.send(codec(name), in)) sum += static_cast<double>(f) * static_cast<double>(f);
    EXPECT_NEAR(std::sqrt(sum), norm, 1e-5) << name;
  }
}

TEST_P(Sparse, RateIsMet) {
  Rng rng(5);
  for (const char* name : {"topk:1%", "topk:0.1%", "dgc:0.1%", "graddrop:0.1%", "topk:10%", "dgc:1%,clip=0.1"}) {
    const Codec mine = codec(name);
    Rank rank(300000);
    for (int step = 0; step < 3; ++step) {
      const std::vector<float> in = gradients(rng, 300000);
      const double want = static_cast<double>(mine.arguments().rate) * 0.3;
      EXPECT_NEAR(static_cast<double>(values_in(rank.send(mine, in))), want, 0.1 * want) << name << ", " << step;
    }
  }
}

// The rate is met even if the first elements are much larger than all others. The counts of the first pass then do not
// suffice.
TEST_P(Sparse, RateIsMetBehindALargeHead) {
  Rng rng(11);
  std::vector<float> in = gradients(rng, 200000);
  for (size_t i = 0; i < 10000; ++i) in[i] *= 1000;
  for (size_t i = 0; i < 100; ++i) in[190000 + i] = kInf;
  for (const char* name : {"topk:10%", "dgc:10%,m=0", "mstopk:10%"}) {
    Rank rank(in.size());
    EXPECT_NEAR(static_cast<double>(values_in(rank.send(codec(name), in))), 20090, name[0] == 'm' ? 0 : 400) << name;
  }
}

// Equal magnitudes do not change the rate. Tests data with one magnitude, with two magnitudes, and with magnitudes of
// one bin of the histogram.
TEST_P(Sparse, MsTopKMeetsItExactly) {
  Rng rng(6);
  const Codec mine = codec("mstopk:1%");
  for (const size_t floats : {size_t{1}, size_t{50}, size_t{700}, size_t{20000}}) {
    const size_t want = std::max<size_t>(1, (floats + 50) / 100);
    for (int kind = 0; kind < 5; ++kind) {
      std::vector<float> in = gradients(rng, floats);
      for (float& f : in) {
        if (kind == 1) f = f < 0 ? -0.5F : 0.5F;
        if (kind == 2) f = rng.one_in(150) ? 1.0F : 0.25F;
        if (kind == 3) f = 1 + f;
        if (kind == 4) f *= 1e-30F;
        if (f == 0) f = 1e-30F;
      }
      Rank rank(floats);
      ASSERT_EQ(values_in(rank.send(mine, in)), want) << floats << ", " << kind;
      const Rank after = rank;
      ASSERT_EQ(values_in(rank.send(mine, std::vector<float>(floats))), std::min(want, floats - want));
    }
  }
}

// Among equal elements, mstopk sends a run of neighbours. The rank's seed decides where the run begins.
TEST_P(Sparse, MsTopKTakesARun) {
  const std::vector<float> in(10000, 0.5F);
  std::vector<size_t> starts;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rank rank(in.size());
    const std::vector<float> sent = rank.send(codec("mstopk:1%"), in, 1400, seed);
    const auto first = std::ranges::find_if(sent, [](float f) { return f != 0; });
    ASSERT_EQ(values_in(std::span(&*first, 100)), 100U);
    ASSERT_EQ(values_in(sent), 100U);
    starts.push_back(static_cast<size_t>(first - sent.begin()));
  }
  std::ranges::sort(starts);
  EXPECT_LT(starts.front(), 4000U);
  EXPECT_GT(starts.back(), 6000U);
}

// A scan in slices has the same result as a scan of everything at once.
TEST_P(Sparse, LooksInSlices) {
  Rng rng(7);
  const std::vector<float> in = gradients(rng, 20000);
  for (const char* name : {"topk:1%", "mstopk:1%", "dgc:1%"}) {
    Codec mine = codec(name);
    const auto scan = std::make_unique<TensorScan>();
    while (scan->pass < mine.passes()) {
      for (size_t at = 0, count = 0; at < in.size(); at += count) {
        count = std::min(in.size() - at, rng.below(900) + 1);
        mine.scan(*scan, {in.data() + at, nullptr, nullptr, count, at});
      }
      mine.end_pass(*scan);
    }
    mine.finish_scan(*scan, 0);
    EXPECT_EQ(encode_all(mine, in), encode_all(ready_for(codec(name), in), in)) << name;
  }
}

TEST_P(Sparse, NotNumbersAndInfinitiesAreSentAndNotKept) {
  for (const char* name : {"topk:1%", "mstopk:1%", "dgc:1%", "graddrop:1%", "topk:1%+fixed:10", "dgc:1%+fixed:4"}) {
    Rng rng(8);
    std::vector<float> in = gradients(rng, 2000);
    in[3] = kNan;
    in[700] = -kInf;
    in[1999] = kInf;
    in[256] = std::numeric_limits<float>::max();
    Rank rank(in.size());
    rank.residual[9] = kNan;
    rank.residual[700] = kInf;
    const std::vector<float> sent = rank.send(codec(name), in);
    EXPECT_EQ(bits_of(sent[3]), 0x7fc00000U) << name;
    EXPECT_EQ(bits_of(sent[9]), 0x7fc00000U) << name;
    EXPECT_EQ(bits_of(sent[700]), 0x7fc00000U) << name;
    EXPECT_EQ(sent[1999], kInf) << name;
    EXPECT_EQ(sent[256], in[256]) << name;
    for (const size_t i : {3U, 9U, 700U, 1999U}) {
      EXPECT_EQ(rank.residual[i], 0) << name;
      EXPECT_EQ(rank.second[i], 0) << name;
    }
    for (const float f : rank.residual) EXPECT_TRUE(std::isfinite(f)) << name;
  }
}

// Zeros are never sent. A lone denormal is sent, unless it becomes 0 on the lattice.
TEST_P(Sparse, LittleToSend) {
  for (const char* name : {"topk:1%", "mstopk:1%", "dgc:0.1%", "topk:1%+fixed:10"}) {
    std::vector<float> in(1000);
    Rank rank(in.size());
    EXPECT_EQ(values_in(rank.send(codec(name), in)), 0U) << name;
    in[77] = -0.0F;
    in[500] = 1e-44F;
    const size_t want = codec(name).arguments().value_bits == 0 ? 1 : 0;
    EXPECT_EQ(values_in(rank.send(codec(name), in)), want) << name;
  }
}

// The states of elements that do not fit into the block do not change.
TEST_P(Sparse, StatesOfWhatIsNotConsumedStay) {
  Rng rng(9);
  for (const char* name : {"topk:20%", "dgc:20%", "dgc:20%+fixed:12"}) {
    const std::vector<float> in = gradients(rng, 1000);
    std::vector<float> residual = gradients(rng, 1000), second = gradients(rng, 1000);
    const std::vector<float> residual_was = residual, second_was = second;
    const Codec mine = ready_for(codec(name), in, residual.data(), second.data());
    for (size_t room = 0; room < 1200; room += 13) {
      std::vector<uint8_t> out(room);
      residual = residual_was;
      second = second_was;
      const size_t done =
          mine.encode({in.data(), residual.data(), in.size(), out.data(), room, 0, second.data()}).floats;
      ASSERT_TRUE(done % 256 == 0 || done == in.size());
      for (size_t i = done; i < in.size(); ++i) {
        ASSERT_EQ(residual[i], residual_was[i]) << name << ", room " << room;
        ASSERT_EQ(second[i], second_was[i]) << name << ", room " << room;
      }
    }
  }
}

// Sums are fp32 sums in the order of the hops, as with raw. On the lattice, sums are the same in any order.
TEST_P(Sparse, HopsAddUp) {
  Rng rng(10);
  for (const char* name : {"topk:5%", "dgc:5%", "topk:5%+fixed:14"}) {
    const Codec mine = codec(name);
    std::vector<std::vector<float>> ranks, sent;
    std::vector<Codec> codecs;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.push_back(gradients(rng, 1500));
      codecs.push_back(ready_for(mine, ranks.back()));
      sent.push_back(decode_all(mine, encode_all(codecs.back(), ranks.back()), 1500));
    }
    std::vector<std::vector<uint8_t>> sums;
    for (const auto& order : {std::array{0U, 1U, 2U}, std::array{2U, 0U, 1U}, std::array{1U, 2U, 0U}}) {
      std::vector<uint8_t> block = encode_all(codecs[order[0]], ranks[order[0]]);
      std::vector<float> want = sent[order[0]];
      for (const unsigned next : {order[1], order[2]}) {
        std::vector<uint8_t> out(mine.max_bytes(1500));
        const HopResult hop = codecs[next].hop(block, ranks[next], out);
        ASSERT_EQ(hop.floats, 1500U);
        out.resize(hop.bytes);
        block = out;
        for (size_t i = 0; i < want.size(); ++i) want[i] += sent[next][i];
      }
      ASSERT_EQ(decode_all(mine, block, 1500), want) << name;
      sums.push_back(block);
    }
    if (mine.exact_sums()) {
      EXPECT_EQ(sums[1], sums[0]) << name;
      EXPECT_EQ(sums[2], sums[0]) << name;
    }
  }
}

void expect_status(const Codec& mine, size_t floats, const std::vector<uint8_t>& block, Status want) {
  std::vector<float> out(floats);
  std::vector<uint8_t> sum(mine.max_bytes(floats));
  EXPECT_EQ(mine.validate(block, floats), want);
  EXPECT_EQ(mine.decode(block, out), want);
  EXPECT_EQ(mine.decode_add(block, out), want);
  EXPECT_EQ(mine.hop(block, out, sum).status, want);
}

TEST_P(Sparse, BadBlocks) {
  const Codec plain = codec("topk:1%"), lattice = codec("topk:1%+fixed:10");
  const auto with = [](std::vector<uint8_t> head, size_t zeros) {
    head.resize(head.size() + zeros);
    return head;
  };
  expect_status(plain, 300, with({2, 0, 255}, 9), Status::kOk);
  expect_status(plain, 300, with({2, 0, 255}, 8), Status::kShort);      // no second record
  expect_status(plain, 300, with({2, 0, 255}, 7), Status::kShort);      // a value is cut
  expect_status(plain, 300, with({2, 0}, 0), Status::kShort);           // a place is cut
  expect_status(plain, 300, with({2, 0, 255}, 10), Status::kLong);      // a byte too many
  expect_status(plain, 300, with({2, 5, 5}, 9), Status::kBadTail);      // one place twice
  expect_status(plain, 300, with({2, 5, 4}, 9), Status::kBadTail);      // places not in order
  expect_status(plain, 9, with({2, 4, 9}, 8), Status::kBadTail);        // a place after the last float
  expect_status(plain, 9, with({3, 0, 1, 2}, 12), Status::kBadEscape);  // a bitmap would be shorter
  expect_status(plain, 9, with({255, 1, 2}, 4), Status::kBadTail);      // bit 9 is after the last float
  expect_status(plain, 9, with({255, 1, 1}, 8), Status::kOk);
  expect_status(plain, 9, with({255, 1}, 0), Status::kShort);          // half a bitmap
  expect_status(plain, 9, with({254}, 300), Status::kBadEscape);       // not a valid count
  expect_status(lattice, 9, with({1, 3}, 0), Status::kShort);          // no width
  expect_status(lattice, 9, with({1, 3, 0}, 0), Status::kBadEscape);   // a width of 0
  expect_status(lattice, 9, with({1, 3, 26}, 4), Status::kBadEscape);  // not a valid width
  expect_status(lattice, 9, with({1, 3, 25}, 4), Status::kOk);
  expect_status(lattice, 9, with({1, 3, 25}, 3), Status::kShort);
  expect_status(lattice, 9, with({1, 3, 32}, 4), Status::kOk);
  expect_status(lattice, 9, with({0}, 0), Status::kOk);
  expect_status(lattice, 9, with({255, 0, 0}, 1), Status::kLong);  // no values, so no width
}

// A record stores fp32 values if one of its values is not on the lattice.
TEST_P(Sparse, WidthsOnTheLattice) {
  const Codec mine = codec("topk:1%+fixed:10");
  const float step = 0x1p-9F;
  for (const auto& [value, width] : std::initializer_list<std::pair<float, size_t>>{{-1, 1},
                                                                                    {1, 2},
                                                                                    {-2, 2},
                                                                                    {2, 3},
                                                                                    {127, 8},
                                                                                    {-128, 8},
                                                                                    {128, 9},
                                                                                    {0x1p24F - 1, 25},
                                                                                    {-0x1p24F + 1, 25},
                                                                                    {0x1p24F, 32},
                                                                                    {0.5F, 32},
                                                                                    {kInf, 32},
                                                                                    {kNan, 32}}) {
    std::vector<float> sums(40);
    sums[7] = value * step;
    const std::vector<uint8_t> block = encode_all_sums(mine, sums);
    ASSERT_EQ(block[2], width) << value;
    ASSERT_EQ(block.size(), 3 + (width + 7) / 8) << value;
    ASSERT_EQ(bits_of(decode_all(mine, block, 40)), bits_of(sums)) << value;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Sparse, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::sparse_test
