// compute_loop.cc - a thread that computes all the time, as the backward pass does during an exchange
#include "tools/bench/compute_loop.h"

namespace gradlane {
namespace {

// floats in a round, which takes some 10 us, so that the number of rounds resolves short times
constexpr size_t kPiece = 16384;
constexpr size_t kPieces = 128;  // 16 MB in all, more than a core's caches
constexpr int kTimes = 4;        // multiplications and additions for each float that is loaded

}  // namespace

ComputeLoop::ComputeLoop() : weights_(kPieces * kPiece, 0.5F), sums_(kPieces * kPiece, 1.0F) {
  thread_ = std::thread([this] { run(); });
}

ComputeLoop::~ComputeLoop() {
  stop_.store(true, std::memory_order_relaxed);
  thread_.join();
}

void ComputeLoop::run() noexcept {
  for (uint64_t round = 0; !stop_.load(std::memory_order_relaxed); ++round) {
    const float* const weights = weights_.data() + round % kPieces * kPiece;
    float* const sums = sums_.data() + round % kPieces * kPiece;
    for (size_t i = 0; i < kPiece; ++i) {
      float sum = sums[i];
      for (int k = 0; k < kTimes; ++k) sum = sum * weights[i] + 0.25F;
      sums[i] = sum;
    }
    rounds_.store(round + 1, std::memory_order_relaxed);
  }
}

}  // namespace gradlane
