// votes_test.cc - kernels of the signsgd codecs for GPUs, run on the CPU: their bytes are those of the CPU's kernels
#include "tests/client/gpu/device.h"
// The kernels use the names of device.h.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "client/python/gradlane/torch/kernels/votes.cu"
#include "compress/encoded_tensor.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test::gpu::votes_test {
namespace {

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;
using Words = std::vector<uint32_t>;

constexpr const char* kNames[] = {"signsgd", "signsgd,ternary", "signsgd,ef"};
constexpr size_t kSizes[] = {1, 7, 8, 9, 31, 33, 255, 256, 257, 511, 513, 4095, 4096, 4097, 30'001};
constexpr size_t kRunSizes[] = {256, 4096, 4352, 15'000, 3, 77};

bool abstains(const Codec& codec) { return codec.id() == CodecId::kSignSgdTernary; }

// Returns a codec with a seed, and with a scale if `mean` is not 0.
Codec ready(const std::string& name, uint64_t seed, float mean) {
  Codec codec = find_codec(name, Isa::kScalar);
  codec.seed(seed + 1, seed);
  if (mean != 0) {
    TensorScan scan;
    codec.finish_scan(scan, mean);
  }
  return codec;
}
float scale_of(float mean) { return mean == 0 ? 1 : std::ldexp(1.0F, std::ilogb(mean * 1.41421356F)); }

class GpuVotes : public testing::Test {
 protected:
  Bytes encode(const Codec& codec, uint64_t seed, float scale, const Floats& floats, Floats* residual,
               uint64_t position) {
    const size_t blocks = (floats.size() + kEncodedBlock - 1) / kEncodedBlock;
    const Words in = bits_of(floats);
    Words left = residual == nullptr ? Words() : bits_of(*residual);
    std::vector<uint64_t> states(1 + blocks);
    Memory out(max_encoded_bytes(codec, floats.size()));
    launcher_.run(static_cast<uint32_t>(blocks), [&] {
      gradlane::gpu::votes::gradlane_votes_encode(in.data(), residual == nullptr ? nullptr : left.data(), floats.size(),
                                                  position, abstains(codec) ? 1 : 0, seed, scale, out.data(),
                                                  states.data());
    });
    for (size_t i = 0; i < left.size(); ++i) (*residual)[i] = float_of(left[i]);
    uint64_t end = 0;
    std::memcpy(&end, out.data() + blocks * sizeof end, sizeof end);
    EXPECT_LE(end, out.span().size());
    return {out.data(), out.data() + std::min<size_t>(end, out.span().size())};
  }

  bool decode(float scale, const Bytes& encoded, Words& out) {
    Memory bytes(encoded);
    uint32_t fault = 0;
    launcher_.run(static_cast<uint32_t>((out.size() + kEncodedBlock - 1) / kEncodedBlock), [&] {
      gradlane::gpu::votes::gradlane_votes_decode(bytes.data(), encoded.size(), out.size(), scale, out.data(), &fault);
    });
    return fault == 0;
  }

  bool decode_runs(float scale, const std::vector<gradlane::gpu::Run>& runs, const Bytes& arena, Words& out) {
    Memory bytes(arena);
    uint32_t fault = 0;
    launcher_.run(static_cast<uint32_t>(runs.size()), [&] {
      gradlane::gpu::votes::gradlane_votes_decode_runs(runs.data(), bytes.data(), arena.size(), out.size(), scale,
                                                       out.data(), &fault);
    });
    return fault == 0;
  }

  // Checks that the GPU's bytes, residuals and decoded floats are those of the CPU. mean: 0 if there is no scale.
  void expect_same(const std::string& name, uint64_t seed, float mean, const Floats& floats, Floats* residual,
                   uint64_t position = 0) {
    const Codec codec = ready(name, seed, mean);
    const float scale = scale_of(mean);
    Bytes expected(max_encoded_bytes(codec, floats.size()));
    Floats left = residual == nullptr ? Floats() : *residual;
    uint64_t at = encoded_table_bytes(floats.size());
    std::memcpy(expected.data(), &at, sizeof at);
    Words decoded(floats.size());
    for (size_t first = 0; first < floats.size(); first += kEncodedBlock) {
      const size_t count = std::min(kEncodedBlock, floats.size() - first);
      const size_t bytes = codec
                               .encode({.in = floats.data() + first,
                                        .residual = residual == nullptr ? nullptr : left.data() + first,
                                        .floats = count,
                                        .out = expected.data() + at,
                                        .room = expected.size() - at,
                                        .position = position + first})
                               .bytes;
      Floats block(count);
      ASSERT_EQ(codec.decode(std::span(expected).subspan(at, bytes), block), Status::kOk);
      std::ranges::copy(bits_of(block), decoded.begin() + static_cast<std::ptrdiff_t>(first));
      at += bytes;
      std::memcpy(expected.data() + (first / kEncodedBlock + 1) * sizeof at, &at, sizeof at);
    }
    expected.resize(at);
    ASSERT_EQ(encode(codec, seed, scale, floats, residual, position), expected);
    if (residual != nullptr) {
      ASSERT_EQ(bits_of(*residual), bits_of(left));
    }
    Words out(floats.size());
    ASSERT_TRUE(decode(scale, expected, out));
    ASSERT_EQ(out, decoded);
  }

  Launcher launcher_{gradlane::gpu::kThreads, 3, 1};
};

TEST_F(GpuVotes, AllSizesAndKinds) {
  Rng rng(1);
  for (const std::string name : kNames) {
    const FloatSource source(find_codec(name));
    for (const size_t size : kSizes) {
      SCOPED_TRACE(name + ", " + std::to_string(size) + " floats");
      const Kind kind = kKinds[rng.below(kKinds.size())];
      const uint64_t seed = uint64_t{rng.bits()} << 32 | rng.bits();
      expect_same(name, seed, name == "signsgd,ef" ? 0.3F : 0, source.make(rng, kind, size), nullptr,
                  uint64_t{rng.bits()} << 8);
    }
    for (const Kind kind : kKinds) {
      SCOPED_TRACE(name + ", kind " + std::to_string(static_cast<int>(kind)));
      expect_same(name, rng.bits(), 0, source.make(rng, kind, 1 + rng.below(3000)), nullptr);
    }
    // Records of one kind of vote each.
    for (const float only : {0.0F, -0.0F, 1.0F, -1.0F, std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      expect_same(name, rng.bits(), 0, Floats(300, only), nullptr);
    }
  }
}

TEST_F(GpuVotes, ErrorFeedback) {
  Rng rng(2);
  const FloatSource source(find_codec("signsgd,ef"));
  for (const float mean : {0x1p-120F, 0.001F, 1.4F, 1.5F, 100.0F}) {
    const size_t size = 1 + rng.below(6000);
    Floats residual(size);
    for (const Kind kind : kKinds) {
      SCOPED_TRACE(std::to_string(mean) + ", kind " + std::to_string(static_cast<int>(kind)));
      expect_same("signsgd,ef", rng.bits(), mean, source.make(rng, kind, size), &residual);
    }
  }
}

// An independent implementation wrote this file (reference_selection.py). The first rank's block is one of votes.
TEST_F(GpuVotes, GoldenVectors) {
  const char* folder = std::getenv("GRADLANE_GOLDEN_DIR");
  ASSERT_NE(folder, nullptr) << "GRADLANE_GOLDEN_DIR is not set: it names tests/compress/golden";
  std::ifstream file(std::filesystem::path(folder).parent_path() / "golden_selection.txt");
  std::string text, hex[6];
  std::getline(file, text);
  size_t seen = 0;
  while (std::getline(file, text)) {
    std::istringstream head(text);
    std::string name;
    uint64_t position = 0, seed = 0;
    head >> name >> position >> seed;
    for (std::string& each : hex) file >> each;
    std::getline(file, text);
    if (!name.starts_with("signsgd")) continue;
    Floats in;
    for (size_t i = 0; i < hex[0].size(); i += 8) {
      in.push_back(float_of(static_cast<uint32_t>(std::stoul(hex[0].substr(i, 8), nullptr, 16))));
    }
    Bytes block;
    for (size_t i = 0; i < hex[3].size(); i += 2) {
      block.push_back(static_cast<uint8_t>(std::stoul(hex[3].substr(i, 2), nullptr, 16)));
    }
    SCOPED_TRACE(name + ", " + std::to_string(in.size()) + " floats");
    const Bytes got = encode(find_codec(name), seed, 1, in, nullptr, position);
    ASSERT_EQ(Bytes(got.begin() + static_cast<std::ptrdiff_t>(encoded_table_bytes(in.size())), got.end()), block);
    ++seen;
  }
  EXPECT_GE(seen, 9U);
}

// Results and sums are runs of any length, at any address. They have values up to 256, and more if others wrote them.
TEST_F(GpuVotes, Runs) {
  Rng rng(3);
  const Codec codec = ready("signsgd,ef", 1, 0.1F);
  const FloatSource source(codec);
  std::vector<gradlane::gpu::Run> runs;
  Bytes arena;
  Floats expected;
  for (const size_t size : kRunSizes) {
    const Bytes block = make_block(rng, codec, source, BlockKind::kForeign, size);
    Floats floats(size);
    ASSERT_EQ(codec.decode(block, floats), Status::kOk);
    arena.resize(arena.size() + rng.below(4));
    runs.push_back({expected.size(), arena.size(), static_cast<uint32_t>(size), static_cast<uint32_t>(block.size())});
    arena.insert(arena.end(), block.begin(), block.end());
    expected.insert(expected.end(), floats.begin(), floats.end());
  }
  Words out(expected.size());
  ASSERT_TRUE(decode_runs(scale_of(0.1F), runs, arena, out));
  ASSERT_EQ(out, bits_of(expected));
}

// The kernel accepts the blocks that the CPU accepts.
TEST_F(GpuVotes, MalformedBlocks) {
  Rng rng(4);
  size_t refused = 0;
  for (int i = 0; i < 400; ++i) {
    const Codec codec = ready(kNames[rng.below(std::size(kNames))], 1, 0);
    const size_t size = 1 + rng.below(i % 20 == 0 ? 9000 : 600);
    const Bytes block = make_block(rng, codec, FloatSource(codec), kBlockKinds[rng.below(kBlockKinds.size())], size);
    Floats expected(size);
    Words out(size);
    const bool valid = codec.decode(block, expected) == Status::kOk;
    ASSERT_EQ(decode_runs(1, {{0, 0, static_cast<uint32_t>(size), static_cast<uint32_t>(block.size())}}, block, out),
              valid)
        << codec.name() << ", " << size << " floats";
    if (valid) {
      ASSERT_EQ(out, bits_of(expected));
    }
    refused += valid ? 0 : 1;
  }
  EXPECT_GT(refused, 50U);
}

}  // namespace
}  // namespace gradlane::test::gpu::votes_test
