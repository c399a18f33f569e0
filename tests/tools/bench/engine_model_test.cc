// engine_model_test.cc - the engine model gives the bits of codec `inceptionn`, in the clock cycles of the hardware
#include "tools/bench/engine_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "compress/codec.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test::engine_model_test {
namespace {

// The greatest latency in cycles: two pipeline stages, and a flush of up to two bursts.
constexpr uint64_t kMaxLatency = 4;

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;

// Returns a nearly normal number of variance 1. It only uses sums, because a logarithm may differ between libraries.
double normal(Rng& rng) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += rng.bits() * 0x1p-32;
  return sum;
}

Floats gaussian(size_t count, double sigma) {
  Rng rng(17);
  Floats data(count);
  for (float& f : data) f = static_cast<float>(sigma * normal(rng));
  return data;
}

// Returns numbers of a Laplace distribution: that of the determinant of four normal numbers. The order in which the two
// factors of a product are drawn does not matter.
Floats laplace(size_t count, double scale) {
  Rng rng(18);
  Floats data(count);
  for (float& f : data) {
    const double one = normal(rng) * normal(rng);
    const double other = normal(rng) * normal(rng);
    f = static_cast<float>(scale * (one - other));
  }
  return data;
}

Floats of_kind(Kind kind, size_t count) {
  Rng rng(19);
  return FloatSource(find_codec("inceptionn:10", Isa::kScalar)).make(rng, kind, count);
}

// Returns NaN, Inf, denormals, zeros, both sides of every power of two that is a limit of a class for some b, and ties.
Floats corner_cases() {
  using Limits = std::numeric_limits<float>;
  Floats data = {0,
                 Limits::infinity(),
                 Limits::quiet_NaN(),
                 float_of(0x7f812345),
                 Limits::denorm_min(),
                 Limits::min(),
                 std::nextafterf(Limits::min(), 0),
                 Limits::max()};
  for (int exponent = -16; exponent <= 1; ++exponent) {
    const float limit = std::ldexp(1.0F, exponent);
    data.insert(data.end(),
                {limit, std::nextafterf(limit, 0), std::nextafterf(limit, 2), limit * 1.25F, limit * 1.75F});
  }
  const size_t positive = data.size();
  for (size_t i = 0; i < positive; ++i) data.push_back(-data[i]);
  return data;
}

// Returns data whose groups have every length, and begin at every offset in a burst.
Floats mixed(size_t count) {
  Rng rng(20);
  Floats data(count);
  for (float& f : data) f = std::ldexp(1.0F, -static_cast<int>(rng.below(12)));
  for (size_t i = 0; i < count; i += 8) {
    if (rng.one_in(2)) std::fill_n(data.begin() + static_cast<ptrdiff_t>(i), std::min<size_t>(8, count - i), 1.5F);
  }
  return data;
}

// Returns the block of codec `inceptionn` that holds the groups of a stream.
Bytes block_of(const std::vector<Burst>& bursts, size_t floats) {
  Bytes stream;
  for (const Burst& burst : bursts) stream.insert(stream.end(), burst.begin(), burst.end());
  Bytes tags;
  Bytes payload;
  size_t at = 0;
  for (size_t group = 0; group < (floats + 7) / 8; ++group) {
    size_t bytes = 0;
    for (size_t bit = 0; bit < 16; bit += 2) {
      constexpr size_t kWidth[] = {0, 1, 2, 4};
      bytes += kWidth[stream.at(at + bit / 8) >> bit % 8 & 3];
    }
    for (const size_t end = at + 2; at < end; ++at) tags.push_back(stream.at(at));
    for (const size_t end = at + bytes; at < end; ++at) payload.push_back(stream.at(at));
  }
  EXPECT_LT(stream.size() - at, 32U);
  EXPECT_TRUE(std::all_of(stream.begin() + static_cast<ptrdiff_t>(at), stream.end(), [](auto b) { return b == 0; }));
  tags.resize((floats + 31) / 32 * 8);
  tags.insert(tags.end(), payload.begin(), payload.end());
  return tags;
}

bool same_bits(const Floats& a, const Floats& b) { return bits_of(a) == bits_of(b); }

void expect_codec(EngineParams params, const Floats& data) {
  const std::string name = "inceptionn:" + std::to_string(params.bits) + (params.truncate ? ",truncate" : "");
  SCOPED_TRACE(name + " of " + std::to_string(data.size()));
  const Codec codec = find_codec(name, Isa::kScalar);
  const Bytes block = encode_all(codec, data);

  const EngineRun run = compress_stream(params, data);
  EXPECT_EQ(block_of(run.bursts, data.size()), block);
  const DecompressionRun back = decompress_stream(params, run.bursts, data.size());
  EXPECT_EQ(back.status, Status::kOk);
  EXPECT_TRUE(same_bits(back.floats, decode_all(codec, block, data.size())));
}

TEST(EngineModel, CarriesTheBitsOfTheCodec) {
  const std::vector<Floats> inputs = {laplace(4096, 1e-3),       gaussian(4096, 0.01), gaussian(4099, 0.1),
                                      gaussian(4093, 1),         corner_cases(),       mixed(8191),
                                      of_kind(Kind::kBits, 4097)};
  for (unsigned bits = 2; bits <= 14; ++bits) {
    for (const bool truncate : {false, true}) {
      for (const Floats& input : inputs) expect_codec({bits, truncate}, input);
    }
  }
}

TEST(EngineModel, EveryLength) {
  for (size_t floats = 0; floats < 140; ++floats) expect_codec({10, false}, mixed(floats));
}

// The payloads include ones that no encoder writes: zero with a sign.
TEST(EngineModel, DecodesEveryPayloadAsTheCodecDoes) {
  constexpr size_t kFloats = 65536;
  for (const size_t width : {size_t{1}, size_t{2}}) {
    Bytes payload;
    for (size_t i = 0; i < kFloats; ++i) {
      payload.push_back(static_cast<uint8_t>(i));
      if (width == 2) payload.push_back(static_cast<uint8_t>(i >> 8));
    }
    const auto tags = static_cast<uint8_t>(width * 0x55);
    Bytes block(kFloats / 4, tags);
    block.insert(block.end(), payload.begin(), payload.end());
    Bytes stream;
    for (auto at = payload.begin(); at != payload.end(); at += static_cast<ptrdiff_t>(8 * width)) {
      stream.insert(stream.end(), {tags, tags});
      stream.insert(stream.end(), at, at + static_cast<ptrdiff_t>(8 * width));
    }
    std::vector<Burst> bursts((stream.size() + 31) / 32);
    std::memcpy(bursts.data(), stream.data(), stream.size());
    for (unsigned bits = 2; bits <= 14; ++bits) {
      Floats decoded(kFloats);
      ASSERT_EQ(find_codec("inceptionn:" + std::to_string(bits), Isa::kScalar).decode(block, decoded), Status::kOk);
      EXPECT_TRUE(same_bits(decompress_stream({bits, false}, bursts, kFloats).floats, decoded));
    }
  }
}

TEST(EngineModel, CompressibleDataKeepsTheBusBusy) {
  constexpr size_t kFloats = 80000;
  for (const Floats& data : {Floats(kFloats), laplace(kFloats, 1e-3), Floats(kFloats, 0.3F)}) {
    const EngineRun run = compress_stream({10, false}, data);
    EXPECT_EQ(run.stalls, 0U);
    EXPECT_LE(run.cycles, kFloats / 8 + kMaxLatency);
    const DecompressionRun back = decompress_stream({10, false}, run.bursts, kFloats);
    EXPECT_LE(back.cycles, kFloats / 8 + kMaxLatency);
  }
}

TEST(EngineModel, IncompressibleDataStallsOneCycleIn17) {
  const Floats data(80000, 1.5F);
  const EngineRun run = compress_stream({10, false}, data);
  EXPECT_EQ(run.bursts.size(), 10000U * 272 / 256);
  EXPECT_GE(run.cycles, run.bursts.size());
  EXPECT_LE(run.cycles, run.bursts.size() + kMaxLatency);
  EXPECT_NEAR(static_cast<double>(run.stalls), 10000.0 / 16, 2);
  const DecompressionRun back = decompress_stream({10, false}, run.bursts, data.size());
  EXPECT_GE(back.cycles, run.bursts.size());
  EXPECT_LE(back.cycles, run.bursts.size() + kMaxLatency);
}

// The input has gaps. Registers then keep their content, and a buffer of two bursts suffices.
TEST(EngineModel, TwoBurstBufferNeitherOverflowsNorLocks) {
  const Floats data = mixed(80000);
  const EngineRun run = compress_stream({10, false}, data);
  DecompressionEngine engine({10, false}, data.size());
  Rng rng(21);
  Floats floats;
  size_t most = 0;
  size_t next = 0;
  uint64_t cycles = 0;
  for (; !engine.done() && cycles < 3 * data.size() / 8; ++cycles) {
    const bool offer = next < run.bursts.size() && !rng.one_in(8);
    const Burst* in = offer ? &run.bursts[next] : nullptr;
    next += offer && engine.ready();
    if (const auto out = engine.clock(in)) {
      for (const uint32_t word : *out) floats.push_back(float_of(word));
    }
    most = std::max(most, engine.buffered_bits());
    ASSERT_LE(most, 512U);
  }
  EXPECT_TRUE(engine.done());
  EXPECT_EQ(most, 512U);
  EXPECT_TRUE(same_bits(floats, decompress_stream({10, false}, run.bursts, data.size()).floats));
}

// Gaps on the bus delay the stream, and do not change it.
TEST(EngineModel, InputGapsDoNotChangeTheStream) {
  const Floats data = mixed(8000);
  CompressionEngine engine({10, false});
  Rng rng(22);
  std::vector<Burst> bursts;
  size_t next = 0;
  while (next < data.size() || !engine.idle()) {
    const bool offer = next < data.size() && rng.one_in(2);
    Lanes lanes{};
    if (offer) std::memcpy(lanes.data(), data.data() + next, sizeof lanes);
    const bool flush = next == data.size();
    next += offer && engine.ready() ? lanes.size() : 0;
    if (const auto out = engine.clock(offer ? &lanes : nullptr, flush)) bursts.push_back(*out);
  }
  EXPECT_EQ(bursts, compress_stream({10, false}, data).bursts);
}

TEST(EngineModel, BadStreamsEndInAnError) {
  const EngineParams params{10, false};
  const Floats data = mixed(803);
  const std::vector<Burst> bursts = compress_stream(params, data).bursts;
  for (size_t kept = 0; kept < bursts.size(); ++kept) {
    EXPECT_EQ(decompress_stream(params, std::span(bursts).first(kept), data.size()).status, Status::kShort);
  }
  EXPECT_EQ(decompress_stream(params, bursts, std::numeric_limits<size_t>::max()).status, Status::kShort);
  EXPECT_EQ(decompress_stream(params, bursts, 400).status, Status::kLong);
  EXPECT_EQ(decompress_stream(params, bursts, 0).status, Status::kLong);
  EXPECT_EQ(decompress_stream(params, bursts, 802).status, Status::kBadTail);

  std::vector<Burst> longer = bursts;
  longer.emplace_back();
  EXPECT_EQ(decompress_stream(params, longer, data.size()).status, Status::kLong);

  Burst padded = compress_stream(params, Floats(8)).bursts.at(0);
  padded.back() = 1;
  EXPECT_EQ(decompress_stream(params, std::span(&padded, 1), 8).status, Status::kLong);
}

TEST(EngineModel, AnyBytesAreSafe) {
  Rng rng(23);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Burst> bursts(rng.below(20));
    for (Burst& burst : bursts) std::ranges::generate(burst, [&] { return static_cast<uint8_t>(rng.bits()); });
    const size_t floats = rng.below(200);
    const DecompressionRun run = decompress_stream({10, false}, bursts, floats);
    EXPECT_LE(run.floats.size(), floats);
    EXPECT_LE(run.cycles, floats / 8 + bursts.size() + kMaxLatency);
  }
}

TEST(EngineModel, RefusesOtherBounds) {
  EXPECT_THROW((void)compress_stream({1, false}, {}), SetupError);
  EXPECT_THROW((void)decompress_stream({15, false}, {}, 0), SetupError);
}

TEST(EngineModel, FigureIsBitsPerSecond) {
  EXPECT_DOUBLE_EQ(fp32_gbps(8, 1), 25.6);
  EXPECT_EQ(fp32_gbps(0, 0), 0);
  const EngineFigure fast = engine_figure(10, false, Floats(80000));
  EXPECT_NEAR(fast.compress_gbps, 25.6, 0.02);
  EXPECT_NEAR(fast.decompress_gbps, 25.6, 0.02);
  EXPECT_EQ(fast.stream_bytes, 80000U / 16 * 4);
  EXPECT_NEAR(engine_figure(10, true, Floats(80000, 1.5F), 200e6).compress_gbps, 51.2 * 16 / 17, 0.04);
}

}  // namespace
}  // namespace gradlane::test::engine_model_test
