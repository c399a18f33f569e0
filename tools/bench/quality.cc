// quality.cc - what a codec does to gradients: how small they get, and how far the mean of all ranks is off (set-up of
// benchmarks only)
#include "tools/bench/quality.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/error.h"

namespace gradlane {
namespace {

void require(bool ok) {
  if (!ok) throw SetupError("a benchmark met a block that does not decode: this is a bug in gradlane");
}

// One block's way along the ring. Buffers are kept from block to block.
class Chain {
 public:
  Chain(const Codec& codec, size_t floats)
      : codec_(codec), block_(codec.max_bytes(floats)), next_(block_.size()), sum_(floats) {}

  void add(const Contributions& ranks, size_t first, size_t floats, Quality& quality) {
    const auto part = [=](std::span<const float> rank) { return rank.subspan(first, floats); };
    size_t bytes = codec_.encode(part(ranks.front()), block_).bytes;
    for (const std::span<const float> rank : std::span(ranks).subspan(1)) {
      const HopResult hop = codec_.hop(std::span(block_).first(bytes), part(rank), next_);
      require(hop.status == Status::kOk && hop.floats == floats);
      bytes = hop.bytes;
      std::swap(block_, next_);
    }
    const std::span<float> sum = std::span(sum_).first(floats);
    require(codec_.decode(std::span(block_).first(bytes), sum) == Status::kOk);
    quality.fp32_bytes += sum.size_bytes();
    quality.encoded_bytes += bytes;
    for (size_t i = 0; i < floats; ++i) {
      double exact = 0;
      for (const std::span<const float> rank : ranks) exact += static_cast<double>(rank[first + i]);
      const double mean = exact / static_cast<double>(ranks.size());
      const double off = static_cast<double>(sum[i]) / static_cast<double>(ranks.size()) - mean;
      quality.error += off * off;
      quality.norm += mean * mean;
    }
  }

 private:
  const Codec& codec_;
  std::vector<uint8_t> block_;
  std::vector<uint8_t> next_;
  std::vector<float> sum_;
};

void add_ring(const Codec& codec, const Contributions& ranks, size_t block_floats, Quality& quality) {
  const size_t all = ranks.front().size();
  Chain chain(codec, std::min(block_floats, all));
  for (size_t first = 0; first < all; first += block_floats) {
    chain.add(ranks, first, std::min(block_floats, all - first), quality);
  }
}

}  // namespace

Quality ring_quality(const Codec& codec, const Contributions& ranks, size_t block_floats) {
  Quality quality;
  add_ring(codec, ranks, block_floats, quality);
  return quality;
}

Quality single_quality(const Codec& codec, const Contributions& ranks, size_t block_floats) {
  Quality quality;
  for (const std::span<const float> rank : ranks) add_ring(codec, {rank}, block_floats, quality);
  return quality;
}

}  // namespace gradlane
