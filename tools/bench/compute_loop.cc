// compute_loop.cc - computes on a thread of its own, as a backward does beside an exchange
#include "tools/bench/compute_loop.h"

namespace gradlane {
namespace {

constexpr size_t kPiece = 16384;  // floats: a round of them takes some 10 us, so that rounds tell short times apart
constexpr size_t kPieces = 128;   // 16 MB in all, more than a core's caches
constexpr int kTimes = 4;         // what is loaded is used

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
