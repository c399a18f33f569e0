// test_floats.h - floats and blocks that the tests and fuzz targets of codecs share; knows no test framework
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

// The same numbers for a seed everywhere, which the distributions of <random> do not promise.
class Rng {
 public:
  explicit Rng(uint64_t seed) : engine_(seed) {}
  uint32_t bits() { return static_cast<uint32_t>(engine_() >> 32); }
  size_t below(size_t n) { return static_cast<size_t>(engine_() % n); }
  bool one_in(size_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

// Whether a codec on the lattice, or one of votes, selects what it contributes (selection_cases.h).
bool selects(const CodecRow& row);
// Names of every other codec with every parameter, and of a few that differ most.
std::vector<std::string> all_codecs();
std::vector<std::string> some_codecs();

// The codec for an operation on these floats, of one rank, who keeps these states (null: none): looked at and settled.
Codec ready_for(Codec codec, std::span<const float> floats, const float* residual = nullptr,
                const float* second = nullptr);

// What a run of floats looks like. Ranges follow the codec's parameter.
enum class Kind : uint8_t {
  kBits,         // any 32 bits
  kGradients,    // exponents as gradients have them, most below 1
  kEdges,        // boundaries of classes and of rounding, one ulp below and above; NaN, Inf, denormals
  kNarrowEdges,  // of these the ones that no raw tag is needed for
  kSteps,        // multiples of half a step, up to one of several limits around the ranges of int8 and int16
  kSparse,       // mostly 0 and -0
  kOutliers,     // gradients, one in 100 of them large, Inf or NaN
  kResidual,     // half a step at most
  kMixed,        // another kind for each group
};
inline constexpr std::array kKinds = {Kind::kBits,        Kind::kGradients, Kind::kEdges,
                                      Kind::kNarrowEdges, Kind::kSteps,     Kind::kSparse,
                                      Kind::kOutliers,    Kind::kResidual,  Kind::kMixed};

class FloatSource {
 public:
  explicit FloatSource(const Codec& codec);
  std::vector<float> make(Rng& rng, Kind kind, size_t count) const;
  const std::vector<float>& edges() const { return edges_; }

 private:
  float one(Rng& rng, Kind kind, size_t limit) const;

  double step_;
  std::vector<float> edges_;
  std::vector<float> narrow_edges_;
};

// What a block looks like.
enum class BlockKind : uint8_t {
  kEncoded,  // as encode() writes it
  kForeign,  // any tags and any payload, of the right length
  kCorrupt,  // some bits turned
  kCut,      // bytes missing or left over
};
inline constexpr std::array kBlockKinds = {BlockKind::kEncoded, BlockKind::kForeign, BlockKind::kCorrupt,
                                           BlockKind::kCut};

std::vector<uint8_t> make_block(Rng& rng, const Codec& codec, const FloatSource& source, BlockKind kind, size_t floats);

// The block of all of `in`.
std::vector<uint8_t> encode_all(const Codec& codec, std::span<const float> in);
// The same of sums.
std::vector<uint8_t> represent_all(const Codec& codec, std::span<const float> sums);
// The floats of a block that must be valid; aborts if it is not.
std::vector<float> decode_all(const Codec& codec, std::span<const uint8_t> block, size_t floats);

uint32_t bits_of(float f);
float float_of(uint32_t bits);
std::vector<uint32_t> bits_of(std::span<const float> floats);

}  // namespace gradlane::test
