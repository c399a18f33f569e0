// stream_copy.cc - a copy past the caches (any thread)
#include "base/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace gradlane {

#ifdef __SSE2__
void stream_copy(void* to, const void* from, size_t bytes) noexcept {
  constexpr size_t kLine = 64;
  auto* out = static_cast<uint8_t*>(to);
  const auto* in = static_cast<const uint8_t*>(from);
  const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(out) % kLine);
  if (head != 0) std::memcpy(out, in, head);
  size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    const auto* const source = reinterpret_cast<const __m128i*>(in + at);
    auto* const line = reinterpret_cast<__m128i*>(out + at);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(line, a);
    _mm_stream_si128(line + 1, b);
    _mm_stream_si128(line + 2, c);
    _mm_stream_si128(line + 3, d);
  }
  if (at != bytes) std::memcpy(out + at, in + at, bytes - at);
}

void stream_fence() noexcept { _mm_sfence(); }
#else
void stream_copy(void* to, const void* from, size_t bytes) noexcept {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

void stream_fence() noexcept {}
#endif

}  // namespace gradlane
