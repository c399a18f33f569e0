// pairwise.h - a loop over groups that reads one group while it writes the previous one (included by AVX-512's
// translation units)
#pragma once

#include <immintrin.h>

#include "compress/layout.h"

namespace gradlane {
namespace {

// Prefetches two cache lines one page (4096 bytes) after p: processors prefetch on their own only within a page. The
// page need not exist.
GRADLANE_INLINE void fetch_next_page(const float* p) {
  constexpr size_t kPage = 4096;
  const auto* const ahead = reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(p) + kPage);
  _mm_prefetch(ahead, _MM_HINT_T0);
  _mm_prefetch(ahead + 64, _MM_HINT_T0);
}

// Runs over groups [group, groups): `begin(g, begun)` reads a group, and `finish(g, begun)` writes it. Stops if one of
// them returns false. Returns the first group that is not written.
template <class Begun, class Begin, class Finish>
GRADLANE_INLINE size_t run_pairwise(size_t group, size_t groups, Begin begin, Finish finish) {
  Begun now, next;
  if (group >= groups || !begin(group, now)) return group;
  while (group + 1 < groups && begin(group + 1, next)) {
    if (!finish(group, now)) [[unlikely]]
      return group;
    ++group;
    now = next;
  }
  return finish(group, now) ? group + 1 : group;
}

}  // namespace
}  // namespace gradlane
