// variants_test.cc - the kernels of every instruction set give the bytes of the scalar ones, for every codec and op,
// and wherever the spans lie
//
// The scalar kernels run too: they are compared with themselves at other addresses.
#include <cmath>

#include "tests/compress/isa_test.h"
#include "tests/compress/test_calls.h"
#include "tests/thorough.h"

namespace gradlane::test::variants_test {
namespace {

// One codec with the scalar kernels and with those under test, and a source of data.
struct Pair {
  Pair(const std::string& name, Isa isa)
      : scalar(find_named(name, Isa::kScalar)), mine(find_named(name, isa)), source(scalar) {}

  // Compares `call` with the scalar outcome. The spans of the codec under test lie `offset` bytes after an aligned
  // address.
  [[nodiscard]] testing::AssertionResult agree(const Call& call, size_t offset) const {
    HeapMemory aligned;
    HeapMemory shifted(offset);
    const Outcome want = run(scalar, call, aligned);
    const Outcome got = run(mine, call, shifted);
    if (want == got) return testing::AssertionSuccess();
    return testing::AssertionFailure() << describe(scalar, call) << ", offset " << offset << ": "
                                       << difference(want, got);
  }

  void agree_on_all(Rng& rng, const CallData& data) const {
    const Pair ready = rng.one_in(2) ? *this : ready_for_all(data);
    for (const Call& call : make_calls(rng, scalar, data)) {
      ASSERT_TRUE(ready.agree(call, rng.one_in(2) ? 0 : rng.below(64)));
    }
  }

  // Returns this pair after both codecs have scanned the data, each on its own.
  [[nodiscard]] Pair ready_for_all(const CallData& data) const {
    Pair pair = *this;
    const float* const second = mine.states() > 1 ? data.residual.data() + data.floats.size() : nullptr;
    pair.scalar = ready_for(scalar, data.floats, data.residual.data(), second);
    pair.mine = ready_for(mine, data.floats, data.residual.data(), second);
    return pair;
  }

  Codec scalar;
  Codec mine;
  FloatSource source;
};

class Variants : public IsaTest {
 protected:
  static std::vector<Pair> pairs(const std::vector<std::string>& names) {
    std::vector<Pair> all;
    for (const std::string& name : names) {
      all.emplace_back(name, GetParam());
      EXPECT_EQ(all.back().mine.isa(), GetParam());
    }
    return all;
  }
};

TEST_P(Variants, EveryLength) {
  Rng rng(1);
  for (const Pair& codec : pairs(and_halves(some_codecs()))) {
    for (size_t floats = 0; floats <= 200; ++floats) {
      for (int repeat = 0; repeat < rounds(5); ++repeat) {
        ASSERT_NO_FATAL_FAILURE(codec.agree_on_all(rng, make_data(rng, codec.scalar, codec.source, floats)));
      }
    }
  }
}

// There is enough random data of each kind to take rare paths often: a saturated group after narrow ones, or a group
// that no longer fits.
TEST_P(Variants, EveryKindOfData) {
  Rng rng(2);
  for (const Pair& codec : pairs(and_halves(some_codecs()))) {
    for (const Kind kind : kKinds) {
      for (const BlockKind block_kind : kBlockKinds) {
        for (int repeat = 0; repeat < rounds(10); ++repeat) {
          const size_t floats = 100 + rng.below(300);
          CallData data = make_data(rng, codec.scalar, codec.source, floats);
          data.floats = codec.source.make(rng, kind, floats);
          data.block = make_block(rng, codec.scalar, codec.source, block_kind, floats);
          ASSERT_NO_FATAL_FAILURE(codec.agree_on_all(rng, data));
        }
      }
    }
  }
}

// Every boundary of classes and rounding, for every parameter, is input, block, accumulator and residual. Narrow edges
// have runs of their own, because one raw float keeps 31 others off the narrow path.
TEST_P(Variants, EdgesOfEveryParameter) {
  Rng rng(3);
  for (const Pair& codec : pairs(and_halves(all_codecs()))) {
    for (const Kind kind : {Kind::kEdges, Kind::kNarrowEdges, Kind::kSteps}) {
      CallData data;
      data.floats = kind == Kind::kEdges ? codec.source.edges() : codec.source.make(rng, kind, 500);
      const size_t states = std::max(1U, codec.mine.states()) * data.floats.size();
      data.residual = codec.source.make(rng, kind == Kind::kEdges ? kind : Kind::kResidual, states);
      data.block = encode_all(codec.scalar, codec.source.make(rng, kind, data.floats.size()));
      ASSERT_NO_FATAL_FAILURE(codec.agree_on_all(rng, data));
    }
  }
}

// The local value is far outside the range of 8 or 16 bits, and the block brings the sum back. A kernel that saturates
// would take the sum for a small one.
TEST_P(Variants, SumsOfOppositeExtremes) {
  std::vector<float> limits;
  for (int k = 0; k <= 22; ++k) {
    for (const float less : {-1.0F, 0.0F, 1.0F}) limits.push_back(std::ldexp(1.0F, k) - less);
  }
  for (const Pair& codec : pairs({"fixed:10"})) {
    const auto steps = [](float n) { return std::vector<float>(96, std::ldexp(n, -9)); };
    const std::vector<float> zeros = steps(0);
    for (const float block : limits) {
      if (block > 32768) break;
      for (const float sign : {-1.0F, 1.0F}) {
        const std::vector<uint8_t> encoded = encode_all(codec.scalar, steps(sign * block));
        for (const float local : limits) {
          const std::vector<float> floats = steps(-sign * local);
          for (const Op op : {Op::kHop, Op::kHopFeedback}) {
            ASSERT_TRUE(codec.agree({op, encoded, floats, zeros, codec.scalar.max_bytes(96), 0}, 0));
          }
        }
      }
    }
  }
}

// An accumulator or residual of zeros shows the sign of the value that is added to it.
TEST_P(Variants, SignsOfZero) {
  const float zeros[] = {0.0F, -0.0F};
  for (const Pair& codec : pairs(and_halves(some_codecs()))) {
    for (const float in : zeros) {
      for (const float owed : zeros) {
        for (const float small : {0.0F, -0.0F, 0x1p-149F, -0x1p-149F, 0x1p-40F, -0x1p-40F}) {
          const size_t states = std::max(1U, codec.mine.states()) * 40;
          CallData data{std::vector<float>(40, in), std::vector<float>(states, owed), {}};
          data.floats[33] = small;
          data.block = encode_all(codec.scalar, std::vector<float>(40, small));
          Rng rng(4);
          ASSERT_NO_FATAL_FAILURE(codec.agree_on_all(rng, data));
        }
      }
    }
  }
}

TEST_P(Variants, EveryOffset) {
  Rng rng(5);
  for (const Pair& codec : pairs(and_halves(some_codecs()))) {
    for (size_t offset = 0; offset <= 64; ++offset) {
      const CallData data = make_data(rng, codec.scalar, codec.source, 97);
      for (const Call& call : make_calls(rng, codec.scalar, data)) ASSERT_TRUE(codec.agree(call, offset));
    }
  }
}

// Runs are longer than a packet, because the limit on cut blocks is part of the contract.
TEST_P(Variants, LongRuns) {
  Rng rng(6);
  for (const Pair& codec : pairs(and_halves(some_codecs()))) {
    for (const Kind kind : {Kind::kMixed, Kind::kOutliers, Kind::kSparse}) {
      CallData data;
      data.floats = codec.source.make(rng, kind, rounds(size_t{20'000}));
      data.residual = codec.source.make(rng, Kind::kResidual, std::max(1U, codec.mine.states()) * data.floats.size());
      data.block = encode_all(codec.scalar, codec.source.make(rng, kind, data.floats.size()));
      ASSERT_NO_FATAL_FAILURE(codec.agree_on_all(rng, data));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Variants, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::variants_test
