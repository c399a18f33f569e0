// fixed_test.cc - kernels of codec fixed for GPUs, run on the CPU: their bytes are those of the CPU's kernels
#include "tests/client/gpu/device.h"
// The kernels use the names of device.h.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>

#include "client/python/gradlane/torch/kernels/fixed.cu"
#include "compress/encoded_tensor.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test::gpu::fixed_test {
namespace {

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;
using Words = std::vector<uint32_t>;

constexpr uint32_t kLeast = 1, kMost = 30;
constexpr size_t kSizes[] = {1, 2, 31, 32, 33, 63, 64, 65, 511, 512, 513, 4095, 4096, 4097, 8191, 12345, 100'003};
constexpr size_t kRunSizes[] = {32, 4096, 4128, 9984, 20'000, 1, 77};
constexpr uint32_t kFeedbackBits[] = {1, 2, 6, 10, 14, 23, 30};
constexpr uint32_t kRunBits[] = {3, 10, 20};
constexpr uint32_t kGoldenBits[] = {1, 10, 30};

Codec fixed(uint32_t bits) { return find_codec("fixed:" + std::to_string(bits), Isa::kScalar); }

class GpuFixed : public testing::Test {
 protected:
  // Returns the encoded tensor. Residuals may be null.
  Bytes encode(uint32_t bits, const Floats& floats, Floats* residual = nullptr) {
    const size_t blocks = (floats.size() + kEncodedBlock - 1) / kEncodedBlock;
    Words in = bits_of(floats);
    Words left = residual == nullptr ? Words() : bits_of(*residual);
    std::vector<uint64_t> states(1 + blocks);
    Memory out(max_encoded_bytes(fixed(bits), floats.size()));
    launcher_.run(static_cast<uint32_t>(blocks), [&] {
      gradlane::gpu::fixed::gradlane_fixed_encode(in.data(), residual == nullptr ? nullptr : left.data(), floats.size(),
                                                  bits, out.data(), states.data());
    });
    for (size_t i = 0; i < left.size(); ++i) (*residual)[i] = float_of(left[i]);
    uint64_t end = 0;
    std::memcpy(&end, out.data() + blocks * sizeof end, sizeof end);
    EXPECT_LE(end, out.span().size());
    return {out.data(), out.data() + std::min<size_t>(end, out.span().size())};
  }

  // Decodes an encoded tensor. Returns false if it is malformed.
  bool decode(uint32_t bits, const Bytes& encoded, Words& out) {
    Memory bytes(encoded);
    uint32_t fault = 0;
    launcher_.run(static_cast<uint32_t>((out.size() + kEncodedBlock - 1) / kEncodedBlock), [&] {
      gradlane::gpu::fixed::gradlane_fixed_decode(bytes.data(), encoded.size(), out.size(), bits, out.data(), &fault);
    });
    return fault == 0;
  }

  bool decode_runs(uint32_t bits, const std::vector<gradlane::gpu::Run>& runs, const Bytes& arena, Words& out,
                   uint32_t divisor = 1) {
    Memory bytes(arena);
    uint32_t fault = 0;
    launcher_.run(static_cast<uint32_t>(runs.size()), [&] {
      gradlane::gpu::fixed::gradlane_fixed_decode_runs(runs.data(), bytes.data(), arena.size(), out.size(), bits,
                                                       divisor, out.data(), &fault);
    });
    return fault == 0;
  }

  // Decodes one block.
  bool decode_block(uint32_t bits, const Bytes& block, Words& out) {
    return decode_runs(bits, {{0, 0, static_cast<uint32_t>(out.size()), static_cast<uint32_t>(block.size())}}, block,
                       out);
  }

  // Checks that the GPU's bytes, residuals and decoded floats are those of the CPU.
  void expect_same(uint32_t bits, const Floats& floats, Floats* residual = nullptr) {
    const Codec codec = fixed(bits);
    Bytes expected(max_encoded_bytes(codec, floats.size()));
    Floats left = residual == nullptr ? Floats() : *residual;
    if (residual == nullptr) {
      ASSERT_TRUE(encode_tensor(codec, floats, 0, floats.size(), expected));
    } else {
      encode_with_feedback(codec, floats, left, expected);
    }
    uint64_t end = 0;
    std::memcpy(&end, expected.data() + encoded_table_bytes(floats.size()) - sizeof end, sizeof end);
    expected.resize(end);
    const Bytes got = encode(bits, floats, residual);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], expected[i]) << "byte " << i;
    if (residual != nullptr) {
      ASSERT_EQ(bits_of(*residual), bits_of(left));
    }
    Floats decoded(floats.size());
    ASSERT_TRUE(EncodedTensor(expected, floats.size()).decode(codec, 0, decoded));
    Words on_gpu(floats.size());
    ASSERT_TRUE(decode(bits, expected, on_gpu));
    ASSERT_EQ(on_gpu, bits_of(decoded));
  }

 private:
  // Writes what encode_tensor() would write with residuals.
  static void encode_with_feedback(const Codec& codec, std::span<const float> floats, Floats& residual, Bytes& out) {
    uint64_t at = encoded_table_bytes(floats.size());
    std::memcpy(out.data(), &at, sizeof at);
    for (size_t first = 0; first < floats.size(); first += kEncodedBlock) {
      const auto part = floats.subspan(first, std::min(kEncodedBlock, floats.size() - first));
      at += codec.encode_feedback(part, residual.data() + first, std::span(out).subspan(at)).bytes;
      std::memcpy(out.data() + (first / kEncodedBlock + 1) * sizeof at, &at, sizeof at);
    }
  }

  Launcher launcher_{gradlane::gpu::kThreads, 5, 1};
};

TEST_F(GpuFixed, AllSizes) {
  Rng rng(1);
  for (const size_t size : kSizes) {
    SCOPED_TRACE(size);
    const uint32_t bits = size == 100'003 ? 10 : kLeast + static_cast<uint32_t>(rng.below(kMost));
    expect_same(bits, FloatSource(fixed(bits)).make(rng, Kind::kMixed, size));
  }
}

TEST_F(GpuFixed, AllBitsAndKinds) {
  Rng rng(2);
  for (uint32_t bits = kLeast; bits <= kMost; ++bits) {
    const FloatSource source(fixed(bits));
    for (const Kind kind : kKinds) {
      SCOPED_TRACE("fixed:" + std::to_string(bits) + ", kind " + std::to_string(static_cast<int>(kind)));
      expect_same(bits, source.make(rng, kind, 1 + rng.below(1500)));
    }
    expect_same(bits, source.edges());
  }
}

TEST_F(GpuFixed, ErrorFeedback) {
  Rng rng(3);
  for (const uint32_t bits : kFeedbackBits) {
    const FloatSource source(fixed(bits));
    const size_t size = bits == 10 ? 9'001 : 1 + rng.below(3000);
    Floats residual(size);
    for (const Kind kind : kKinds) {
      SCOPED_TRACE("fixed:" + std::to_string(bits) + ", kind " + std::to_string(static_cast<int>(kind)));
      expect_same(bits, source.make(rng, kind, size), &residual);
    }
    // Residuals that no encoder leaves.
    residual = source.make(rng, Kind::kEdges, size);
    expect_same(bits, source.make(rng, Kind::kEdges, size), &residual);
  }
}

// A race shows in some order of the threads.
TEST_F(GpuFixed, AnyOrderOfThreads) {
  Rng rng(4);
  const Floats floats = FloatSource(fixed(8)).make(rng, Kind::kMixed, 6 * 4096 + 100);
  const Bytes expected = encode(8, floats);
  const size_t blocks = 7;
  const Words in = bits_of(floats);
  for (uint32_t resident = 1; resident <= blocks; ++resident) {
    Launcher launcher(gradlane::gpu::kThreads, resident, resident);
    std::vector<uint64_t> states(1 + blocks);
    Memory out(expected);
    std::ranges::fill(out.span(), uint8_t{0xa5});
    launcher.run(blocks, [&] {
      gradlane::gpu::fixed::gradlane_fixed_encode(in.data(), nullptr, floats.size(), 8, out.data(), states.data());
    });
    ASSERT_TRUE(std::ranges::equal(out.span(), expected)) << resident << " thread blocks at once";
  }
}

// Results are runs of any length, at any address.
TEST_F(GpuFixed, Runs) {
  Rng rng(5);
  for (const uint32_t bits : kRunBits) {
    const Codec codec = fixed(bits);
    const FloatSource source(codec);
    std::vector<gradlane::gpu::Run> runs;
    Bytes arena;
    Floats expected;
    for (const size_t size : kRunSizes) {
      const Bytes block =
          make_block(rng, codec, source, size % 64 == 0 ? BlockKind::kForeign : BlockKind::kEncoded, size);
      const Floats floats = decode_all(codec, block, size);
      arena.resize(arena.size() + rng.below(4));
      runs.push_back({expected.size(), arena.size(), static_cast<uint32_t>(size), static_cast<uint32_t>(block.size())});
      arena.insert(arena.end(), block.begin(), block.end());
      expected.insert(expected.end(), floats.begin(), floats.end());
    }
    Words out(expected.size());
    ASSERT_TRUE(decode_runs(bits, runs, arena, out));
    ASSERT_EQ(out, bits_of(expected));
    Floats thirds = expected;
    for (float& each : thirds) each = std::isnan(each) ? std::numeric_limits<float>::quiet_NaN() : each / 3;
    ASSERT_TRUE(decode_runs(bits, runs, arena, out, 3));
    ASSERT_EQ(out, bits_of(thirds));
    for (const auto& [first, at, floats, bytes] :
         std::vector<gradlane::gpu::Run>{{0, arena.size(), 32, 1},
                                         {0, 1, 32, static_cast<uint32_t>(arena.size())},
                                         {~uint64_t{0}, 0, 32, 1},
                                         {expected.size(), 0, 1, 1},
                                         {0, ~uint64_t{0}, 32, 1},
                                         {0, 0, 0, 1}}) {
      EXPECT_FALSE(decode_runs(bits, {{first, at, floats, bytes}}, arena, out)) << first << ", " << at;
    }
    EXPECT_TRUE(decode_runs(bits, {{expected.size(), arena.size(), 0, 0}}, arena, out));
  }
}

// The kernel accepts the blocks that the CPU accepts.
TEST_F(GpuFixed, MalformedBlocks) {
  Rng rng(6);
  size_t refused = 0;
  for (int i = 0; i < 400; ++i) {
    const uint32_t bits = kLeast + static_cast<uint32_t>(rng.below(kMost));
    const Codec codec = fixed(bits);
    const size_t size = 1 + rng.below(i % 20 == 0 ? 6000 : 300);
    const Bytes block = make_block(rng, codec, FloatSource(codec), kBlockKinds[rng.below(kBlockKinds.size())], size);
    Floats expected(size);
    Words out(size);
    const bool valid = codec.decode(block, expected) == Status::kOk;
    ASSERT_EQ(decode_block(bits, block, out), valid) << codec.name() << ", " << size << " floats";
    if (valid) {
      ASSERT_EQ(out, bits_of(expected));
    }
    refused += valid ? 0 : 1;
  }
  EXPECT_GT(refused, 50U);
}

TEST_F(GpuFixed, MalformedTables) {
  Rng rng(7);
  constexpr size_t kSize = 2 * kEncodedBlock + 5;
  const Bytes good = encode(10, FloatSource(fixed(10)).make(rng, Kind::kOutliers, kSize));
  Words out(kSize);
  for (const size_t length : {size_t{0}, size_t{31}, size_t{32}, good.size() - 1}) {
    EXPECT_FALSE(decode(10, Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)), out)) << length;
  }
  for (const uint64_t wrong : {uint64_t{0}, uint64_t{31}, good.size() + 1, ~uint64_t{0}}) {
    for (size_t number = 0; number < 4; ++number) {
      Bytes bad = good;
      std::memcpy(bad.data() + number * sizeof wrong, &wrong, sizeof wrong);
      EXPECT_FALSE(decode(10, bad, out)) << number << ": " << wrong;
    }
  }
}

// ---- Golden vectors

// A case of a file: its lists by key. Lines of one key are joined.
using Case = std::map<std::string, std::string>;

Bytes bytes_of(const std::string& text) {
  Bytes bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

Floats floats_of(const std::string& text) {
  Floats floats;
  for (size_t i = 0; i < text.size(); i += 8) {
    floats.push_back(float_of(static_cast<uint32_t>(std::stoul(text.substr(i, 8), nullptr, 16))));
  }
  return floats;
}

std::vector<Case> read_cases(const std::filesystem::path& path) {
  std::vector<Case> cases;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string key, word;
    line >> key;
    if (key == "case") {
      line >> cases.emplace_back()["case"];
    } else if (!cases.empty()) {
      while (line >> word) cases.back()[key] += word;
    }
  }
  return cases;
}

TEST_F(GpuFixed, GoldenVectors) {
  const char* folder = std::getenv("GRADLANE_GOLDEN_DIR");
  ASSERT_NE(folder, nullptr) << "GRADLANE_GOLDEN_DIR is not set: it names tests/compress/golden";
  size_t encoded = 0, decoded = 0, refused = 0;
  for (const uint32_t bits : kGoldenBits) {
    for (Case& c : read_cases(std::filesystem::path(folder) / ("fixed-" + std::to_string(bits) + ".txt"))) {
      SCOPED_TRACE(std::to_string(bits) + ", " + c["case"] + " " + c["in"].substr(0, 80));
      const Bytes block = bytes_of(c["block"]);
      if (c["case"] == "encode") {
        const Floats in = floats_of(c["in"]);
        if (in.empty() || in.size() > kEncodedBlock) continue;
        Floats residual = floats_of(c["residual"]);
        const Bytes got = encode(bits, in, residual.empty() ? nullptr : &residual);
        ASSERT_EQ(Bytes(got.begin() + 16, got.end()), block);
        ASSERT_EQ(bits_of(residual), bits_of(floats_of(c["residual_out"])));
        ++encoded;
      }
      if (c["case"] == "invalid") {
        Words out(std::stoul(c["floats"]));
        ASSERT_FALSE(decode_block(bits, block, out));
        ++refused;
      } else if (c.count("out") != 0) {
        const Floats expected = floats_of(c["out"]);
        Words out(expected.size());
        ASSERT_TRUE(decode_block(bits, block, out));
        ASSERT_EQ(out, bits_of(expected));
        ++decoded;
      }
    }
  }
  EXPECT_GT(encoded, 20U);
  EXPECT_GT(decoded, encoded);
  EXPECT_GT(refused, 10U);
}

// Here many thread blocks are at work before any of them knows its offset.
TEST(GpuBlocks, Offsets) {
  constexpr uint32_t kBlocks = 150;
  for (const uint32_t resident : {1U, 34U, kBlocks}) {
    Launcher launcher(gradlane::gpu::kWarpLanes, resident, resident);
    Rng rng(resident);
    std::vector<uint64_t> bytes(kBlocks), states(1 + kBlocks), before(kBlocks);
    for (uint64_t& each : bytes) each = 1 + rng.below(uint64_t{1} << 40);
    launcher.run(kBlocks, [&] {
      const uint32_t first =
          gradlane::gpu::lane() == 0 ? static_cast<uint32_t>(gradlane::gpu::atomicAdd(&states[0], uint64_t{1})) : 0;
      const uint32_t number = gradlane::gpu::__shfl_sync(gradlane::gpu::kFullWarp, first, 0);
      const uint64_t sum = gradlane::gpu::publish_bytes(&states[1], number, bytes[number]);
      if (gradlane::gpu::lane() == 31) before[number] = sum;
    });
    uint64_t sum = 0;
    for (uint32_t i = 0; i < kBlocks; sum += bytes[i++]) ASSERT_EQ(before[i], sum) << i << " of " << resident;
  }
}

// GPUs before compute capability 8.0 have no instruction for this.
TEST(GpuWarp, OrByShuffles) {
  Rng rng(8);
  Launcher launcher(gradlane::gpu::kWarpLanes, 1, 1);
  for (int i = 0; i < 100; ++i) {
    std::array<uint32_t, 32> values{};
    for (uint32_t& value : values) value = rng.bits() & rng.bits() & rng.bits() & rng.bits();
    launcher.run(1, [&] {
      const uint32_t own = values[gradlane::gpu::lane()];
      EXPECT_EQ(gradlane::gpu::or_by_shuffles(own), gradlane::gpu::or_of_warp(own));
    });
  }
}

}  // namespace
}  // namespace gradlane::test::gpu::fixed_test
