// test_floats.h - floats and blocks that the tests and fuzz targets of codecs share. It needs no test framework.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "compress/codec.h"

namespace gradlane::test {

// Random numbers that are the same everywhere for a seed. The distributions of <random> do not promise that.
class Rng {
 public:
  explicit Rng(uint64_t seed) : engine_(seed) {}
  uint32_t bits() { return static_cast<uint32_t>(engine_() >> 32); }
  size_t below(size_t n) { return static_cast<size_t>(engine_() % n); }
  bool one_in(size_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

// Returns whether a codec on the lattice, or one of votes, selects what it contributes (selection_cases.h).
bool selects(const CodecRow& row);
// Return names of codecs for which selects() is false: all of them with every parameter, and a few that differ most.
std::vector<std::string> all_codecs();
std::vector<std::string> some_codecs();

// Returns these names, and those of codecs of elements of 16 bits: "pack:bf16" is pack for bf16. find_named() takes
// them and all that find_codec() takes.
std::vector<std::string> and_halves(std::vector<std::string> names);
Codec find_named(const std::string& name, Isa isa);
// Returns the bytes of `count` elements of a codec.
size_t bytes_of_elements(const Codec& codec, size_t count);

// Returns the codec of a single rank after it has finished its scan of these floats and states. States may be null.
Codec ready_for(Codec codec, std::span<const float> floats, const float* residual = nullptr,
                const float* second = nullptr);

// The kinds of floats in a run. Ranges follow the codec's parameter.
enum class Kind : uint8_t {
  kBits,         // any 32 bits
  kGradients,    // exponents like those of gradients, most below 1
  kEdges,        // boundaries of classes and of rounding, one ulp below and above; NaN, Inf, denormals
  kNarrowEdges,  // edges that need no raw tag
  kSteps,        // multiples of half a step, up to one of several limits around the ranges of int8 and int16
  kSparse,       // mostly 0 and -0
  kOutliers,     // gradients, one in 100 of them large, Inf or NaN
  kResidual,     // half a step at most
  kMixed,        // a different kind for each group
};
inline constexpr std::array kKinds = {Kind::kBits,        Kind::kGradients, Kind::kEdges,
                                      Kind::kNarrowEdges, Kind::kSteps,     Kind::kSparse,
                                      Kind::kOutliers,    Kind::kResidual,  Kind::kMixed};

// Makes floats. For a codec of halves, these have the elements in the first half of their bytes.
class FloatSource {
 public:
  explicit FloatSource(const Codec& codec);
  std::vector<float> make(Rng& rng, Kind kind, size_t count) const;
  const std::vector<float>& edges() const { return edges_; }

 private:
  float one(Rng& rng, Kind kind, size_t limit) const;

  Codec codec_;
  double step_;
  std::vector<float> edges_;
  std::vector<float> narrow_edges_;
};

// The kinds of blocks.
enum class BlockKind : uint8_t {
  kEncoded,  // a block that encode() wrote
  kForeign,  // any tags and any payload, of the right length
  kCorrupt,  // some bits flipped
  kCut,      // bytes missing or too many
};
inline constexpr std::array kBlockKinds = {BlockKind::kEncoded, BlockKind::kForeign, BlockKind::kCorrupt,
                                           BlockKind::kCut};

std::vector<uint8_t> make_block(Rng& rng, const Codec& codec, const FloatSource& source, BlockKind kind, size_t floats);

// Returns the block that encode() makes of all of `in`.
std::vector<uint8_t> encode_all(const Codec& codec, std::span<const float> in);
// Returns the block that encode_sum() makes of all of `sums`.
std::vector<uint8_t> encode_all_sums(const Codec& codec, std::span<const float> sums);
// Returns the floats of a block, which must be valid; aborts if it is not.
std::vector<float> decode_all(const Codec& codec, std::span<const uint8_t> block, size_t floats);

// Returns whether the floats of a block have the same block when they are encoded again. `inceptionn:b,literal` makes a
// shorter block, of the same floats: an 8-bit payload of 0 does not come back.
bool comes_back(const Codec& codec, std::span<const uint8_t> block, size_t floats);

uint32_t bits_of(float f);
float float_of(uint32_t bits);
std::vector<uint32_t> bits_of(std::span<const float> floats);

}  // namespace gradlane::test
