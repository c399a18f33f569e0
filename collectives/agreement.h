// agreement.h - tags of the all-reduces by which client libraries agree on what to choose (pure functions)
//
// The library (client/library/choices.c) puts them in front of operations of its callers, with tags that nobody else is
// likely to have: a mix of a number below 2^kAgreementBits that can be taken back.
#pragma once

#include <cstdint>

namespace gradlane {

inline constexpr unsigned kAgreementBits = 40;

namespace agreement {

inline constexpr uint64_t kStart = 0x6175746f63686f69;
inline constexpr uint64_t kStep = 0x9e3779b97f4a7c15;
inline constexpr uint64_t kMix = 0xbf58476d1ce4e5b9;

// Of an odd number modulo 2^64: each round doubles the bits that are right, of which there are three at first.
[[nodiscard]] constexpr uint64_t inverse(uint64_t odd) noexcept {
  uint64_t result = odd;
  for (int i = 0; i < 5; ++i) result *= 2 - odd * result;
  return result;
}
static_assert(kStep * inverse(kStep) == 1 && kMix * inverse(kMix) == 1);

}  // namespace agreement

[[nodiscard]] constexpr uint64_t agreement_tag(uint64_t number) noexcept {
  uint64_t z = agreement::kStart + number * agreement::kStep;
  z = (z ^ z >> 30) * agreement::kMix;
  return z ^ z >> 27;
}

[[nodiscard]] constexpr bool is_agreement_tag(uint64_t tag) noexcept {
  uint64_t z = tag ^ tag >> 27 ^ tag >> 54;
  z *= agreement::inverse(agreement::kMix);
  z = z ^ z >> 30 ^ z >> 60;
  return (z - agreement::kStart) * agreement::inverse(agreement::kStep) >> kAgreementBits == 0;
}

}  // namespace gradlane
