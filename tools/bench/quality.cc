// quality.cc - what a codec does to gradients: their size, and the error of the mean of all ranks (set-up of benchmarks
// only)
#include "tools/bench/quality.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/error.h"
#include "tools/bench/settle.h"

namespace gradlane {
namespace {

void require(bool ok) {
  if (!ok) throw SetupError("a benchmark met a block that does not decode: this is a bug in gradlane");
}

// Number of floats that every codec takes in one call. A longer block would give the same figures as several of this
// length.
constexpr size_t kOneGo = 8192;

// Sends one block along the ring, or to an owner if encoded blocks cannot be added. It reuses its buffers for all
// blocks.
class Chain {
 public:
  Chain(const Codec& codec, const Contributions& ranks, size_t floats)
      : ranks_(ranks),
        codecs_(settled(codec, ranks)),
        block_(codec.max_bytes(floats)),
        next_(block_.size()),
        sum_(floats) {}

  void add(size_t first, size_t floats, Quality& quality) {
    const std::span<float> sum = std::span(sum_).first(floats);
    const size_t bytes = codecs_.front().row().is_additive ? go_round(first, sum) : go_to_owner(first, sum);
    quality.fp32_bytes += sum.size_bytes();
    quality.encoded_bytes += bytes;
    codecs_.front().finish(sum, first);
    for (size_t i = 0; i < floats; ++i) {
      double exact = 0;
      for (const std::span<const float> rank : ranks_) exact += static_cast<double>(rank[first + i]);
      const double mean = exact / static_cast<double>(ranks_.size());
      const double off = static_cast<double>(sum[i]) / static_cast<double>(ranks_.size()) - mean;
      quality.error += off * off;
      quality.norm += mean * mean;
    }
    // The result of a vote has another magnitude than the mean of the contributions, so it has no vNMSE.
    if (codecs_.front().finishes()) quality.error = std::numeric_limits<double>::quiet_NaN();
  }

 private:
  size_t encode(size_t rank, size_t first, size_t floats) {
    const EncodeResult done = codecs_[rank].encode({.in = ranks_[rank].data() + first,
                                                    .residual = nullptr,
                                                    .floats = floats,
                                                    .out = block_.data(),
                                                    .room = block_.size(),
                                                    .position = first});
    require(done.floats == floats);
    return done.bytes;
  }

  size_t go_round(size_t first, std::span<float> sum) {
    size_t bytes = encode(0, first, sum.size());
    for (size_t rank = 1; rank < ranks_.size(); ++rank) {
      const HopResult hop = codecs_[rank].hop({.block = block_.data(),
                                               .block_bytes = bytes,
                                               .local = ranks_[rank].data() + first,
                                               .residual = nullptr,
                                               .floats = sum.size(),
                                               .first = 0,
                                               .out = next_.data(),
                                               .room = next_.size(),
                                               .position = first});
      require(hop.status == Status::kOk && hop.floats == sum.size());
      bytes = hop.bytes;
      std::swap(block_, next_);
    }
    require(codecs_.back().decode(std::span(block_).first(bytes), sum) == Status::kOk);
    return bytes;
  }

  size_t go_to_owner(size_t first, std::span<float> sum) {
    std::ranges::fill(sum, 0.0F);
    size_t bytes = 0;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      bytes = encode(rank, first, sum.size());
      require(codecs_[rank].decode_add(std::span(block_).first(bytes), sum) == Status::kOk);
    }
    if (ranks_.size() == 1) return bytes;
    const Codec results = codecs_.front().for_results();
    const EncodeResult done = results.encode_sum({.in = sum.data(),
                                                  .residual = nullptr,
                                                  .floats = sum.size(),
                                                  .out = block_.data(),
                                                  .room = block_.size(),
                                                  .position = first});
    require(done.floats == sum.size());
    require(results.decode(std::span(block_).first(done.bytes), sum) == Status::kOk);
    return done.bytes;
  }

  const Contributions& ranks_;
  std::vector<Codec> codecs_;
  std::vector<uint8_t> block_;
  std::vector<uint8_t> next_;
  std::vector<float> sum_;
};

void add_ring(const Codec& codec, const Contributions& ranks, size_t block_floats, Quality& quality) {
  const size_t all = ranks.front().size();
  const size_t block = std::min(block_floats, kOneGo);
  Chain chain(codec, ranks, std::min(block, all));
  for (size_t first = 0; first < all; first += block) chain.add(first, std::min(block, all - first), quality);
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
