// sanitized.h - whether a test runs with a sanitizer, which takes some ten times as long
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GRADLANE_SANITIZED 1
#elif defined(__has_feature)
#define GRADLANE_SANITIZED \
  (__has_feature(address_sanitizer) || __has_feature(memory_sanitizer) || __has_feature(thread_sanitizer))
#else
#define GRADLANE_SANITIZED 0
#endif

namespace gradlane {

inline constexpr bool kSanitized = GRADLANE_SANITIZED != 0;

// Rounds of a test that has many: a fifth of them with sanitizers.
template <class Count>
constexpr Count rounds(Count all) {
  return kSanitized ? all / 5 : all;
}

}  // namespace gradlane
