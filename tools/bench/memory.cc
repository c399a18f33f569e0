// memory.cc - memory for benchmarks (set-up only)
#include "tools/bench/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"

namespace gradlane {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

BenchMemory allocate_memory(size_t bytes) {
  const size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* const p = std::aligned_alloc(kHugePage, size);
  if (p == nullptr) throw SetupError("out of memory: a benchmark needs " + std::to_string(size >> 20) + " MiB");
  (void)madvise(p, size, MADV_HUGEPAGE);  // a failure only makes the figures less steady
  std::memset(p, 0, size);
  return {static_cast<uint8_t*>(p), [](uint8_t* memory) { std::free(memory); }};
}

double memory_speed() {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kFloats = size_t{16} << 20;
  constexpr int kRounds = 5;
  const BenchMemory memory = allocate_memory(2 * kFloats * sizeof(float));
  float* const x = reinterpret_cast<float*>(memory.get());
  float* const y = x + kFloats;
  std::fill_n(x, 2 * kFloats, 1.0F);
  double best = 0;
  for (int i = 0; i < kRounds; ++i) {
    const auto start = Clock::now();
    for (size_t k = 0; k < kFloats; ++k) y[k] += x[k];
    asm volatile("" : : "r"(y) : "memory");  // keeps the compiler from leaving out rounds
    best = std::max(best, 3 * sizeof(float) * kFloats / std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

}  // namespace gradlane
