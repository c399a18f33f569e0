// thorough.h - pairwise or, with GRADLANE_THOROUGH=1 (nightly), all combinations of a test's parameters
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <vector>

namespace gradlane {

inline bool thorough() {
  static const bool it_is = std::getenv("GRADLANE_THOROUGH") != nullptr;
  return it_is;
}

// Returns the number of rounds of a test: `all` with GRADLANE_THOROUGH=1, otherwise a fifth.
template <class Count>
Count rounds(Count all) {
  return thorough() ? all : all / 5;
}

// Returns index tuples into N lists of these lengths: all combinations with GRADLANE_THOROUGH=1, otherwise a pairwise
// covering array, in which each pair of elements of two lists occurs at least once.
template <size_t N>
std::vector<std::array<size_t, N>> combinations(const std::array<size_t, N>& lengths) {
  std::vector<std::array<size_t, N>> all(1);
  for (size_t list = 0; list < N; ++list) {
    std::vector<std::array<size_t, N>> longer;
    for (std::array<size_t, N> each : all) {
      for (each[list] = 0; each[list] < lengths[list]; ++each[list]) longer.push_back(each);
    }
    all.swap(longer);
  }
  if (thorough()) return all;
  const size_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::vector<bool> seen(N * N * longest * longest);
  const auto each_pair = [&](const std::array<size_t, N>& it, auto visit) {
    for (size_t a = 0; a < N; ++a) {
      for (size_t b = a + 1; b < N; ++b) visit(((a * N + b) * longest + it[a]) * longest + it[b]);
    }
  };
  std::vector<std::array<size_t, N>> chosen;
  for (;;) {
    size_t most = 0;
    const std::array<size_t, N>* best = nullptr;
    for (const std::array<size_t, N>& it : all) {
      size_t unseen = 0;
      each_pair(it, [&](size_t pair) { unseen += seen[pair] ? 0 : 1; });
      if (unseen > most) most = unseen, best = &it;
    }
    if (best == nullptr) return chosen;
    each_pair(*best, [&](size_t pair) { seen[pair] = true; });
    chosen.push_back(*best);
  }
}

}  // namespace gradlane
