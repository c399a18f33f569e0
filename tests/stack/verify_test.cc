// verify_test.cc - verified sums: every fault that changes a result is found, and nothing else
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "compress/codec.h"
#include "tests/stack/stack.h"
#include "tests/stack/trainers.h"
#include "tests/thorough.h"

extern "C" {
#include "client/library/checksum.h"
}

namespace gradlane::test::verify_test {
namespace {

using testing::HasSubstr;

using Floats = std::vector<float>;

Floats gradients(Random& random, size_t count, double largest) {
  Floats values(count);
  for (float& value : values) {
    const double unit = static_cast<double>(random.next() >> 11) * 0x1p-53 * 2 - 1;
    value = static_cast<float>(unit * unit * unit * largest);
  }
  return values;
}

void flip(std::span<uint8_t> bytes, Random& random) {
  bytes[random.next() % bytes.size()] ^= static_cast<uint8_t>(1U << random.next() % 8);
}

std::span<uint8_t> bytes_of(std::span<float> floats) {
  return {reinterpret_cast<uint8_t*>(floats.data()), floats.size_bytes()};
}

// ---- Checksums alone

// A sum of all ranks by `fixed:B`, in a chain of hops. A fault may hit any of its data.
class Sum {
 public:
  Sum(Random& random, unsigned bits, unsigned ranks, size_t count, bool average, double largest)
      : codec_(find_codec("fixed:" + std::to_string(bits))),
        lattice_{std::ldexp(1.0F, static_cast<int>(bits) - 1), ranks, average ? ranks : 1},
        block_(codec_.max_bytes(count)) {
    for (unsigned rank = 0; rank < ranks; ++rank) inputs_.push_back(gradients(random, count, largest));
  }

  enum class Place : uint8_t { kNone, kInput, kBlock, kPartialSum, kResult, kLast = kResult };

  // Returns false if a decoder has refused a block.
  bool run(Place place, Random& random) {
    total_ = {};
    for (const Floats& input : inputs_) {
      const gl_checksum own = gl_checksum_of_contribution(&lattice_, input.data(), nullptr, input.size());
      total_.sum += own.sum;
      total_.places += own.places;
      total_.unfit += own.unfit;
    }
    const unsigned at = static_cast<unsigned>(random.next() % inputs_.size());
    std::vector<Floats> inputs = inputs_;
    if (place == Place::kInput) flip(bytes_of(inputs[at]), random);
    EncodeResult encoded = codec_.encode(inputs[0], block_);
    result_.resize(inputs[0].size());
    for (unsigned rank = 1; rank < inputs.size(); ++rank) {
      if (place == Place::kBlock && rank - 1 == at) flip(std::span(block_).first(encoded.bytes), random);
      if (place == Place::kPartialSum && rank - 1 == at) {
        if (codec_.decode(std::span(block_).first(encoded.bytes), result_) != Status::kOk) return false;
        flip(bytes_of(result_), random);
        encoded = codec_.encode(result_, block_);
      }
      std::vector<uint8_t> next(block_.size());
      const HopResult hop = codec_.hop(std::span(block_).first(encoded.bytes), inputs[rank], next);
      if (hop.status != Status::kOk) return false;
      block_.swap(next);
      encoded.bytes = hop.bytes;
    }
    if (codec_.decode(std::span(block_).first(encoded.bytes), result_) != Status::kOk) return false;
    for (float& value : result_) value /= static_cast<float>(lattice_.divisor);
    if (place == Place::kResult) flip(bytes_of(result_), random);
    return true;
  }

  [[nodiscard]] bool verifiable() const { return total_.unfit == 0; }
  [[nodiscard]] bool passes() const {
    const gl_checksum found = gl_checksum_of_result(&lattice_, result_.data(), result_.size());
    return found.unfit == 0 && found.sum == total_.sum && found.places == total_.places;
  }
  [[nodiscard]] const Floats& result() const { return result_; }

 private:
  Codec codec_;
  gl_lattice lattice_;
  std::vector<uint8_t> block_;
  std::vector<Floats> inputs_;
  gl_checksum total_{};
  Floats result_;
};

bool same(const Floats& a, const Floats& b) { return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0; }

TEST(Checksums, FindEveryFault) {
  Random random(1);
  size_t wrong = 0;
  for (size_t round = 0; round < rounds(size_t{100'000}); ++round) {
    const auto bits = static_cast<unsigned>(1 + random.next() % 20);
    const auto ranks = static_cast<unsigned>(2 + random.next() % 7);
    Sum sum(random, bits, ranks, 1 + random.next() % 700, random.next() % 2 == 0,
            std::ldexp(4.0, -static_cast<int>(bits) / 2));
    const auto place = static_cast<Sum::Place>(1 + random.next() % static_cast<size_t>(Sum::Place::kLast));
    ASSERT_TRUE(sum.run(Sum::Place::kNone, random));
    const Floats right = sum.result();
    if (!sum.verifiable()) continue;
    ASSERT_TRUE(sum.passes()) << "round " << round;
    if (!sum.run(place, random) || same(sum.result(), right)) continue;
    ++wrong;
    ASSERT_FALSE(sum.passes()) << "round " << round << ", place " << static_cast<int>(place);
  }
  EXPECT_GT(wrong, size_t{10'000});
}

// Values at the edges: ties, values beyond the lattice, NaN, all-zero blocks. A block that passes is right, and a block
// that cannot be verified says so.
TEST(Checksums, RaiseNoFalseAlarm) {
  Random random(2);
  size_t verified = 0;
  const size_t all = thorough() ? 1'000'000 : 10'000;
  for (size_t round = 0; round < all; ++round) {
    const auto bits = static_cast<unsigned>(1 + random.next() % 30);
    const double largest = std::ldexp(1.0, static_cast<int>(random.next() % 60) - 40);
    Sum sum(random, bits, static_cast<unsigned>(2 + random.next() % 30), 1 + random.next() % 70, random.next() % 2 == 0,
            largest);
    ASSERT_TRUE(sum.run(Sum::Place::kNone, random));
    if (!sum.verifiable()) continue;
    ++verified;
    ASSERT_TRUE(sum.passes()) << "round " << round << ", fixed:" << bits << " of up to " << largest;
  }
  EXPECT_GT(verified, all / 4);
  const gl_lattice lattice = {512, 2, 1};
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30F, -1e30F, 4097.0F}) {
    const Floats block = {0, value, 0};
    EXPECT_EQ(gl_checksum_of_contribution(&lattice, block.data(), nullptr, 3).unfit, 1U) << value;
  }
}

// ---- The whole way: trainers, shared memory, daemons, packets

struct Job {
  unsigned nodes = 3;
  size_t count = 5000;
  bool average = false;
};

class Ranks {
 public:
  explicit Ranks(const Job& run)
      : run_(run),
        stack_({.nodes = run.nodes,
                .strategies = "ring,direct",
                .change =
                    [](NodeConfig& it) {
                      it.codec = find_codec("fixed:10");
                      it.verify = true;
                    }}),
        team_(stack_) {}

  void start(
      uint64_t seed,
      const std::function<void(unsigned, std::span<float>)>& change = [](unsigned, std::span<float>) {}) {
    for (unsigned rank = 0; rank < run_.nodes; ++rank) {
      Random random(seed * 100 + rank);
      std::ranges::copy(gradients(random, run_.count, 1), array(rank).begin());
      change(rank, array(rank));
      gradlane_how how = GRADLANE_HOW_INIT;
      how.average = run_.average ? 1 : 0;
      EXPECT_EQ(gradlane_all_reduce(team_[rank].gl(), array(rank).data(), run_.count, GRADLANE_FLOAT32, &how,
                                    &requests_[rank]),
                GRADLANE_OK)
          << gradlane_error(team_[rank].gl());
    }
    stack_.wake_all();
  }
  std::map<unsigned, Outcome> wait() {
    std::map<unsigned, Outcome> ends;
    for (unsigned rank = 0; rank < run_.nodes; ++rank) ends[rank] = team_[rank].wait(requests_[rank]);
    return ends;
  }
  void cancel(unsigned rank) {
    EXPECT_EQ(gradlane_cancel(team_[rank].gl(), requests_[rank]), GRADLANE_OK);
    stack_.wake_all();
  }
  void resume() { team_.resume(1000); }
  std::span<float> array(unsigned rank) { return team_[rank].array(0, run_.count); }
  Stack& stack() { return stack_; }
  gradlane_figures figures(unsigned rank) {
    gradlane_figures figures{};
    figures.struct_size = sizeof(figures);
    EXPECT_EQ(gradlane_get_figures(team_[rank].gl(), &figures), GRADLANE_OK);
    return figures;
  }

 private:
  Job run_;
  Stack stack_;
  TrainerGroup team_;
  std::map<unsigned, gradlane_request> requests_;
};

TEST(Verified, SumsOfAllKinds) {
  for (const Job& run :
       {Job{}, Job{.nodes = 2, .count = 200'003}, Job{.average = true}, Job{.nodes = 4, .average = true}}) {
    Ranks ranks(run);
    for (uint64_t seed = 0; seed < 3; ++seed) {
      ranks.start(seed);
      for (const auto& [rank, ended] : ranks.wait()) EXPECT_EQ(ended.code, GRADLANE_OK) << ended.text;
    }
    EXPECT_EQ(ranks.figures(0).unverified_blocks, 0U);
    EXPECT_EQ(ranks.figures(0).verified_blocks, 3 * std::min<uint64_t>(64, (run.count + 1023) / 1024));
  }
}

// A byte of a contribution changes in shared memory after the trainer has handed it over.
TEST(Verified, AContributionThatChanges) {
  Ranks ranks({});
  ranks.start(1);
  ranks.array(1)[1234] += 1;
  for (const auto& [rank, ended] : ranks.wait()) {
    EXPECT_EQ(ended.code, GRADLANE_FAILED);
    EXPECT_THAT(ended.text, HasSubstr("the result on rank " + std::to_string(rank) +
                                      " is wrong: elements 1024 to 2047 are not the sum"));
    EXPECT_THAT(ended.text, HasSubstr("(if it is one, element 1234 by 512 times 0.00195"));
  }
}

// A bit of a result changes in shared memory before the trainer reads it. The other ranks' results are right.
TEST(Verified, AResultThatChanges) {
  Random random(3);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Ranks ranks({.average = seed % 2 == 0});
    ranks.start(seed);
    ranks.stack().run_for(kSecond);
    flip(bytes_of(ranks.array(2)), random);
    for (const auto& [rank, ended] : ranks.wait())
      EXPECT_EQ(ended.code, rank == 2 ? GRADLANE_FAILED : GRADLANE_OK) << ended.text;
  }
}

// Blocks with a value that is too large are not verified, and no block fails.
TEST(Verified, NotWhatIsTooLarge) {
  Ranks ranks({.nodes = 2});
  ranks.start(1, [](unsigned rank, std::span<float> data) { data[rank * 1500] = rank == 0 ? 1e9F : NAN; });
  for (const auto& [rank, ended] : ranks.wait()) EXPECT_EQ(ended.code, GRADLANE_OK) << ended.text;
  EXPECT_EQ(ranks.figures(1).verified_blocks, 3U);
  EXPECT_EQ(ranks.figures(1).unverified_blocks, 2U);
}

// A rank whose operations have begun need not call the library for other ranks to go on.
TEST(Verified, WithoutHelpOfOtherRanks) {
  constexpr size_t kOperations = 20;
  constexpr size_t kFloats = 2000;
  Stack stack({.nodes = 3, .change = [](NodeConfig& it) {
                 it.codec = find_codec("fixed:10");
                 it.verify = true;
               }});
  TrainerGroup team(stack);
  std::vector<gradlane_request> first;
  for (unsigned rank = 0; rank < 3; ++rank) {
    for (unsigned i = 0; i < kOperations; ++i) {
      const gradlane_request request = team[rank].all_reduce(team[rank].array(i, kFloats));
      if (rank == 0) first.push_back(request);
    }
  }
  for (const gradlane_request request : first) EXPECT_EQ(team[0].wait(request).code, GRADLANE_OK);
}

TEST(Verified, CancelledAndClosed) {
  Ranks ranks({.nodes = 2});
  ranks.start(1);
  ranks.cancel(0);
  for (const auto& [rank, ended] : ranks.wait()) EXPECT_EQ(ended.code, GRADLANE_FAILED) << rank;
  ranks.resume();
  ranks.start(2);
  for (const auto& [rank, ended] : ranks.wait()) EXPECT_EQ(ended.code, GRADLANE_OK) << ended.text;
  ranks.start(3);  // unfinished when the contexts are closed
}

// Contributions as large as verified ones can be, on as many ranks as there may be.
TEST(Checksums, AtTheLimit) {
  for (uint32_t ranks = 2; ranks <= 256; ++ranks) {
    for (const uint32_t divisor : {uint32_t{1}, ranks}) {
      const gl_lattice lattice = {512, ranks, divisor};
      const uint32_t steps = (uint32_t{1} << 22) / ranks;
      for (const float sign : {1.0F, -1.0F}) {
        const Floats contribution(40, sign * static_cast<float>(steps) / 512);
        const Floats beyond(40, sign * static_cast<float>(steps + 1) / 512);
        const gl_checksum own =
            gl_checksum_of_contribution(&lattice, contribution.data(), nullptr, contribution.size());
        EXPECT_EQ(own.unfit, 0U) << ranks;
        EXPECT_EQ(gl_checksum_of_contribution(&lattice, beyond.data(), nullptr, beyond.size()).unfit, 1U) << ranks;
        const float sum = sign * static_cast<float>(steps * ranks) / 512;
        const Floats result(40, sum / static_cast<float>(divisor));
        const gl_checksum found = gl_checksum_of_result(&lattice, result.data(), result.size());
        EXPECT_EQ(found.unfit, 0U) << ranks << ", divisor " << divisor;
        EXPECT_EQ(found.sum, ranks * own.sum) << ranks << ", divisor " << divisor;
        EXPECT_EQ(found.places, ranks * own.places) << ranks << ", divisor " << divisor;
      }
    }
  }
}

TEST(Verified, ReduceScatterWithAResidual) {
  constexpr size_t kFloats = 3000;
  Stack stack({.nodes = 3});
  TrainerGroup team(stack);
  for (unsigned round = 0; round < 3; ++round) {
    std::vector<gradlane_request> requests(3);
    for (unsigned rank = 0; rank < 3; ++rank) {
      Random random(round * 10 + rank);
      std::ranges::copy(gradients(random, 3 * kFloats, 1), team[rank].array(0, 3 * kFloats).begin());
      gradlane_how how = GRADLANE_HOW_INIT;
      how.codec = "fixed:6";
      how.residual = team[rank].array(1, 3 * kFloats).data();
      how.average = 1;
      how.verify = 1;
      EXPECT_EQ(gradlane_reduce_scatter(team[rank].gl(), team[rank].array(0, 3 * kFloats).data(), kFloats,
                                        GRADLANE_FLOAT32, &how, &requests[rank]),
                GRADLANE_OK);
    }
    stack.wake_all();
    if (round == 2) {
      stack.run_for(kSecond);
      team[1].array(0, 3 * kFloats)[kFloats + 5] += 1;
      team[2].array(0, 3 * kFloats)[kFloats + 5] += 1;  // not in the block of rank 2
    }
    for (unsigned rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(team[rank].wait(requests[rank]).code, rank == 1 && round == 2 ? GRADLANE_FAILED : GRADLANE_OK);
    }
  }
}

TEST(Verified, RefusedForOtherSums) {
  Stack stack;
  TrainerGroup team(stack);
  const auto data = team[0].array(0, 2000);
  gradlane_how how = GRADLANE_HOW_INIT;
  how.verify = 1;
  gradlane_request request = 0;
  for (const char* const codec : {"raw", "bf16", "auto:2^-10"}) {
    how.codec = codec;
    EXPECT_EQ(gradlane_all_reduce(team[0].gl(), data.data(), 2000, GRADLANE_FLOAT32, &how, &request),
              GRADLANE_BAD_ARGUMENT);
    EXPECT_THAT(gradlane_error(team[0].gl()), HasSubstr("verify is for sums of float32")) << codec;
  }
}

}  // namespace
}  // namespace gradlane::test::verify_test
