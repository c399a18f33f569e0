// thorough.h - how much a test tries: what belongs to every run, or, with GRADLANE_THOROUGH=1, all of it (nightly)
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

// Rounds of a test that has many: mostly a fifth of them.
template <class Count>
Count rounds(Count all) {
  return thorough() ? all : all / 5;
}

// Of lists as long as `lengths`, one index into each: all combinations, or mostly so few that each element of a list is
// together with each one of every other list at least once.
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
