// all_floats_test.cc - all 2^32 floats through fixed:10, fixed:4, inceptionn:10 and pack: error bound, idempotence, and
// the same bytes and floats on every instruction set. It takes some minutes, so it is a program of its own.
//
// A chunk is the 2^16 floats that have the same upper 16 bits. The limit of a Bound is a power of two, which is the
// edge of a chunk. So a bound applies to all floats of a chunk or to none, and the check of a chunk is a plain loop.
// The scalar result is computed once for all instruction sets.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/compress/isa_test.h"

namespace gradlane::test::all_floats_test {
namespace {

constexpr size_t kChunk = 1 << 16;
constexpr size_t kChunks = 1 << 16;

// The error bound for a float f that decodes to v. Where |f| < `limit`, |v - f| <= `bound`. For all other f, v = f. If
// a codec promises |v - f| < 2^-b, `bound` is the largest float below 2^-b.
struct Bound {
  float limit;
  float bound;
};

constexpr float kBelow = 0x1.fffffep-11F;  // the float before 2^-10

struct Counts {
  std::atomic<size_t> beyond_bound{0};
  std::atomic<size_t> not_idempotent{0};
  std::array<std::atomic<size_t>, kIsas.size()> encoded{};   // chunks whose block differs from the scalar one
  std::array<std::atomic<size_t>, kIsas.size()> decoded{};   // chunks whose decoded floats differ from the scalar ones
  std::array<std::atomic<size_t>, kIsas.size()> compared{};  // chunks that were compared
  std::atomic<size_t> swept{0};                              // chunks that are finished; kChunks in the end
};

struct Sweep {
  std::string name;
  Bound bound;
  Counts counts;
};

size_t count_beyond(const std::vector<float>& in, const std::vector<float>& out, Bound bound) {
  if (!(std::fabs(in[0]) < bound.limit)) {
    return std::memcmp(in.data(), out.data(), kChunk * sizeof(float)) == 0 ? 0 : kChunk;
  }
  uint32_t beyond = 0;
  for (size_t i = 0; i < kChunk; ++i) beyond += std::fabs(out[i] - in[i]) <= bound.bound ? 0U : 1U;
  return beyond;
}

// Tests chunks `begin` to `end` and adds the results to the counts.
void sweep_range(Sweep& sweep, size_t begin, size_t end) {
  const Codec scalar = find_codec(sweep.name, Isa::kScalar);
  Counts& counts = sweep.counts;
  std::vector<std::pair<size_t, Codec>> others;
  for (size_t i = 0; i < kIsas.size(); ++i) {
    if (isa_supported(kIsas[i])) others.emplace_back(i, find_codec(sweep.name, kIsas[i]));
  }
  std::vector<float> in(kChunk), out(kChunk), other_out(kChunk);
  std::vector<uint8_t> block(scalar.max_bytes(kChunk)), other(block.size());
  for (size_t chunk = begin; chunk < end; ++chunk) {
    ++counts.swept;
    for (size_t i = 0; i < kChunk; ++i) {
      const auto bits = static_cast<uint32_t>(chunk << 16 | i);
      std::memcpy(&in[i], &bits, sizeof bits);
    }
    const size_t bytes = scalar.encode(in, block).bytes;
    if (scalar.decode({block.data(), bytes}, out) != Status::kOk) std::abort();
    counts.beyond_bound += count_beyond(in, out, sweep.bound);
    const size_t again = scalar.encode(out, other).bytes;
    if (again != bytes || std::memcmp(block.data(), other.data(), bytes) != 0) ++counts.not_idempotent;
    for (const auto& [i, codec] : others) {
      ++counts.compared[i];
      if (codec.isa() == Isa::kScalar) continue;
      const size_t other_bytes = codec.encode(in, other).bytes;
      if (other_bytes != bytes || std::memcmp(block.data(), other.data(), bytes) != 0) ++counts.encoded[i];
      if (codec.decode({block.data(), bytes}, other_out) != Status::kOk ||
          std::memcmp(out.data(), other_out.data(), kChunk * sizeof(float)) != 0) {
        ++counts.decoded[i];
      }
    }
  }
}

// Each thread takes the next range when it has finished one. Fixed shares would not balance the load, because the
// expensive ranges (raw floats) lie together.
void sweep_all(Sweep& sweep) {
  constexpr size_t kRange = 64;
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t at = next.fetch_add(kRange); at < kChunks; at = next.fetch_add(kRange)) {
      sweep_range(sweep, at, at + kRange);
    }
  };
  std::vector<std::jthread> helpers(std::max(1U, std::thread::hardware_concurrency()) - 1);
  for (std::jthread& helper : helpers) helper = std::jthread(work);
  work();
}

class AllFloats : public IsaTest {
 protected:
  static void SetUpTestSuite() {
    for (Sweep& sweep : sweeps_) sweep_all(sweep);
  }

  static inline std::array<Sweep, 4> sweeps_{{
      {"fixed:10", {0x1p14F, 0x1p-10F}, {}},
      {"fixed:4", {0x1p20F, 0x1p-4F}, {}},
      {"inceptionn:10", {1.0F, kBelow}, {}},
      {"pack", {0, 0}, {}},
  }};
};

// The scalar kernels keep the bound and are idempotent, and all other kernels give the same results.
TEST_P(AllFloats, KeepTheContract) {
  const auto isa = static_cast<size_t>(GetParam());
  for (const auto& [name, bound, counts] : sweeps_) {
    EXPECT_EQ(counts.swept, kChunks) << name;
    EXPECT_EQ(counts.compared[isa], counts.swept) << name;
    EXPECT_EQ(counts.beyond_bound, 0U) << name;
    EXPECT_EQ(counts.not_idempotent, 0U) << name;
    EXPECT_EQ(counts.encoded[isa], 0U) << name;
    EXPECT_EQ(counts.decoded[isa], 0U) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, AllFloats, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::all_floats_test
