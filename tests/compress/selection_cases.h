// selection_cases.h - codecs that select what a rank contributes, prepared for tests. It needs no test framework.
#pragma once

#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/compress/test_floats.h"

namespace gradlane::test {

using Floats = std::vector<float>;
using Block = std::vector<uint8_t>;

// Codecs of the lattice, and codecs of votes.
inline constexpr const char* kSelecting[] = {"fixed:1,stochastic",
                                             "fixed:10,stochastic",
                                             "fixed:30,stochastic",
                                             "fixed:rel=1",
                                             "fixed:rel=8",
                                             "fixed:rel=23",
                                             "terngrad:1",
                                             "terngrad",
                                             "tbq:1",
                                             "tbq:7",
                                             "tbq:30",
                                             "signsgd",
                                             "signsgd,ternary",
                                             "signsgd,ef"};

// Returns the codec of rank `rank` for an operation of these ranks: its scan is finished, and its seeds are set.
inline Codec agreed(const std::string& name, Isa isa, std::span<const Floats> ranks, size_t rank, uint64_t seed = 7,
                    const float* residual = nullptr) {
  std::vector<float> offers;
  Codec mine = find_codec(name, isa);
  auto own = std::make_unique<TensorScan>();
  for (size_t r = 0; r < ranks.size(); ++r) {
    auto scan = std::make_unique<TensorScan>();
    if (mine.passes() != 0) mine.scan(*scan, {ranks[r].data(), residual, nullptr, ranks[r].size(), 0});
    offers.push_back(mine.offer(*scan));
    if (r == rank) own = std::move(scan);
  }
  mine.finish_scan(*own, agreed_on(mine.row().agreement, offers));
  mine.seed(seed, seed * 1000 + rank);
  return mine;
}

// The output of a call: all of it, or as much as fits.
struct Written {
  Status status = Status::kOk;
  size_t floats = 0;
  Block block;
  bool operator==(const Written&) const = default;
};

constexpr size_t kAllOfIt = std::numeric_limits<size_t>::max();

inline Written encode(const Codec& codec, const Floats& in, Floats* residual = nullptr, uint64_t position = 0,
                      size_t room = kAllOfIt) {
  Block out(std::min(room, codec.max_bytes(in.size())));
  float* const kept = residual == nullptr ? nullptr : residual->data();
  const EncodeResult result = codec.encode(EncodeJob{in.data(), kept, in.size(), out.data(), out.size(), position});
  out.resize(result.bytes);
  return {Status::kOk, result.floats, out};
}

inline Written encode_sum(const Codec& codec, const Floats& in, size_t room = kAllOfIt) {
  Block out(std::min(room, codec.max_bytes(in.size())));
  const EncodeResult result = codec.encode_sum(EncodeJob{in.data(), nullptr, in.size(), out.data(), out.size()});
  out.resize(result.bytes);
  return {Status::kOk, result.floats, out};
}

inline Written hop(const Codec& codec, const Block& block, const Floats& local, Floats* residual = nullptr,
                   uint64_t position = 0, size_t first = 0, size_t room = kAllOfIt) {
  Block out(std::min(room, codec.max_bytes(local.size() - first)));
  float* const kept = residual == nullptr ? nullptr : residual->data();
  const HopResult result = codec.hop(
      HopJob{block.data(), block.size(), local.data(), kept, local.size(), first, out.data(), out.size(), position});
  out.resize(result.bytes);
  return {result.status, result.floats, out};
}

// Returns gradients of a random scale. Some are 0 or large, and with `special` some are Inf or NaN.
inline Floats some_floats(Rng& rng, size_t count, bool special = true) {
  Floats floats(count);
  const float scale = std::ldexp(1.0F, static_cast<int>(rng.below(20)) - 15);
  for (float& f : floats) {
    f = scale * (static_cast<float>(rng.bits()) * 0x1p-31F - 1);
    if (rng.one_in(10)) f = rng.one_in(2) ? 0.0F : -0.0F;
    if (rng.one_in(30)) f *= 1000;
    if (special && rng.one_in(40)) f = float_of(rng.one_in(2) ? 0x7f800000 | (rng.bits() & 0x80000000) : rng.bits());
  }
  return floats;
}

// Returns records of random votes, as foreign encoders may send them.
inline Block foreign_votes(Rng& rng, size_t floats) {
  Block block;
  for (size_t left = floats; left != 0; left -= std::min<size_t>(left, 256)) {
    const size_t bytes = (std::min<size_t>(left, 256) + 7) / 8;
    const unsigned range = static_cast<unsigned>(rng.one_in(3) ? rng.below(257) : rng.below(9));
    const bool single = rng.one_in(2), special = rng.one_in(3);
    const unsigned head = range | (single ? 0x4000U : 0) | (special ? 0x8000U : 0);
    block.push_back(static_cast<uint8_t>(head));
    block.push_back(static_cast<uint8_t>(head >> 8));
    size_t planes = special ? 2 : 0;
    for (unsigned most = single ? 2 * range : range; most != 0; most /= 2) ++planes;
    for (size_t i = 0; i < planes * bytes; ++i) block.push_back(static_cast<uint8_t>(rng.bits()));
    if (special && rng.one_in(2)) std::fill(block.end() - static_cast<ptrdiff_t>(2 * bytes), block.end(), uint8_t{0});
  }
  return block;
}

}  // namespace gradlane::test
