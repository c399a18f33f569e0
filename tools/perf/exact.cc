// exact.cc - sums of a codec that adds without rounding, computed in one process
#include "tools/perf/exact.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "tools/bench/codec_list.h"
#include "tools/bench/settle.h"

namespace gradlane {
namespace {

constexpr unsigned kTieSeeds = 64;  // number of seeds to try, so that every tied vote comes out both ways

void require(bool ok) {
  if (!ok) throw SetupError("a codec did not take its own block: this is a bug in gradlane");
}

// Returns the sum of magnitudes up to which sums are exact. fp32 adds whole numbers of steps exactly up to 2^24 steps.
// The codec's bound is half a step.
double range_of(const Codec& codec, double largest) {
  if (codec.arguments().value_bits != 0) return std::ldexp(1.0, 25 - codec.arguments().value_bits);
  const CodecError error = codec.error();
  if (!error.bounded) return std::numeric_limits<double>::infinity();
  return 0x1p25 * (error.absolute + error.of_largest * largest);
}

}  // namespace

ExactSums::ExactSums(const Codec& codec, const SimInputs& inputs, unsigned ranks, size_t floats, double largest)
    : inputs_(inputs),
      codecs_(settled(codec, ranks, floats,
                      [&inputs](size_t rank, size_t first, size_t count) {
                        return inputs.values(static_cast<unsigned>(rank), first, std::min(count, SimInputs::kMaxRun));
                      })),
      range_(range_of(codec, largest)),
      block_(codec.max_bytes(SimInputs::kMaxRun)),
      sum_(SimInputs::kMaxRun),
      size_(SimInputs::kMaxRun) {}

std::optional<ExactSums> ExactSums::of(const Codec& codec, const SimInputs& inputs, unsigned ranks, size_t floats,
                                       double largest) {
  if (!codec.exact_sums() || codec.row().rounds_once || floats == 0) return std::nullopt;
  ExactSums sums(codec, inputs, ranks, floats, largest);
  if (sums.contributions_are_random()) return std::nullopt;
  return sums;
}

// Returns whether a contribution depends on random numbers of its rank.
bool ExactSums::contributions_are_random() {
  const Codec own = codecs_.front();
  const auto drawn = [this](uint64_t seed) {
    std::ranges::fill(sum_, 0.0F);
    codecs_.front().seed(1, Random::mix(seed));
    contribute(0, 0, SimInputs::kMaxRun);
    return sum_;
  };
  const bool differ = drawn(1) != drawn(2);
  codecs_.front() = own;
  return differ;
}

void ExactSums::contribute(unsigned rank, size_t first, size_t count) {
  const std::span<const float> in = inputs_.values(rank, first, count);
  const EncodeResult done = codecs_[rank].encode({.in = in.data(),
                                                  .residual = nullptr,
                                                  .floats = count,
                                                  .out = block_.data(),
                                                  .room = block_.size(),
                                                  .position = first});
  require(done.floats == count);
  require(codecs_[rank].decode_add({block_.data(), done.bytes}, std::span(sum_).first(count)) == Status::kOk);
  for (size_t i = 0; i < count; ++i) size_[i] += std::abs(static_cast<double>(in[i]));
}

size_t ExactSums::count_wrong(size_t first, std::span<const float> result) {
  const size_t count = result.size();
  std::fill_n(sum_.begin(), count, 0.0F);
  std::fill_n(size_.begin(), count, 0.0);
  for (unsigned rank = 0; rank < codecs_.size(); ++rank) contribute(rank, first, count);
  if (codecs_.front().finishes()) return count_tied(first, result);
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) wrong += size_[i] <= range_ && !(result[i] == sum_[i]) ? 1 : 0;
  return wrong;
}

size_t ExactSums::count_tied(size_t first, std::span<const float> result) const {
  std::vector<bool> right(result.size());
  std::vector<float> finished;
  for (unsigned lot = 0; lot < kTieSeeds; ++lot) {
    Codec codec = codecs_.front();
    codec.seed(Random::mix(lot + 1), 0);
    finished.assign(sum_.begin(), sum_.begin() + static_cast<std::ptrdiff_t>(result.size()));
    codec.finish(finished, first);
    for (size_t i = 0; i < result.size(); ++i) right[i] = right[i] || result[i] == finished[i];
    if (std::ranges::count(right, false) == 0) return 0;
  }
  return static_cast<size_t>(std::ranges::count(right, false));
}

}  // namespace gradlane
