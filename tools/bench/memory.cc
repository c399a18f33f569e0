// memory.cc - memory for benchmarks (set-up only)
#include "tools/bench/memory.h"

#include <sys/mman.h>

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
  (void)madvise(p, size, MADV_HUGEPAGE);  // only steadies the figures
  std::memset(p, 0, size);
  return {static_cast<uint8_t*>(p), [](uint8_t* memory) { std::free(memory); }};
}

}  // namespace gradlane
